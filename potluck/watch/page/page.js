// The live page: asks for the run again and again, and shows what is new.

import { draw, last, sparkline } from "./chart.js";

const SOON = 1000, LATER = 5000; // milliseconds between questions: while it runs, when it is done
const SPOKEN = 10000; // at most one spoken report of progress in so many milliseconds
const COLOURS = 8; // as many sites can be told apart by colour and dashes
const NOTED = 300; // as many events are kept

const $ = (id) => document.getElementById(id);
const records = [];
let run = null; // the latest answer
let chosen = null; // names of the sites whose curves stand out; null until sites are known
let follow = true; // whether the marked round is always the latest
let cursor = null; // the marked round
let spoken = 0; // when progress was last spoken

const percent = (value) => (value == null ? "–" : `${(100 * value).toFixed(1)} %`);
const number = (value) => (value == null ? "–" : Number(value.toPrecision(4)).toString());
const onAxis = (value, size) => value.toFixed(Math.max(0, Math.min(6, -Math.floor(Math.log10(size) + 1e-9))));
const isShare = (name) => name === "accuracy" || name.endsWith("_accuracy") || name.endsWith("_share");

function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

function clock(iso) {
  const time = iso ? new Date(iso) : new Date();
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString() : time.toLocaleString();
}

const metricName = (key) => key.replaceAll("_", " ");

// ---------------------------------------------------------------- asking

async function ask() {
  let wait = SOON;
  try {
    const answer = await fetch(`state?after=${records.length}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    wait = receive(await answer.json()) === "finished" ? LATER : SOON;
  } catch (error) {
    complain("No answer from potluck watch; this page goes on asking. What it shows may be old.");
    wait = LATER;
  }
  setTimeout(ask, wait);
}

function complain(sentence) {
  if ($("problem").textContent !== sentence) $("problem").textContent = sentence;
  $("problem").hidden = !sentence;
}

function receive(answer) {
  complain(answer.problem ?? "");
  if (answer.problem) return null;
  const before = run;
  run = answer;
  records.length = Math.min(records.length, run.after);
  const fresh = run.records;
  records.push(...fresh);
  tell(before, fresh);
  if (follow || cursor > records.length) { follow = true; cursor = records.length || null; }
  const moved = before === null || fresh.length > 0 || before.done !== run.done;
  const cameOrWent = before === null || JSON.stringify(before.sites) !== JSON.stringify(run.sites);
  showProgress();
  if (moved || cameOrWent) showAll();
  return run.state;
}

// ---------------------------------------------------------------- events and spoken reports

function note(text, when = null) {
  const entry = document.createElement("li");
  entry.textContent = when ? `${when}  ${text}` : text;
  $("events").prepend(entry);
  while ($("events").childElementCount > NOTED) $("events").lastElementChild.remove();
}

function tell(before, fresh) {
  const said = [];
  for (const record of fresh) note(describe(record));
  const known = new Map((before?.sites ?? []).map((site) => [site.name, site.present]));
  for (const site of run.sites) {
    const was = known.get(site.name) ?? true;
    if (was === site.present) continue;
    const text = site.present ? `${site.name} is back` : `${site.name} is absent${why(site)}`;
    note(text, clock(site.since || null));
    said.push(`${text}.`);
  }
  if (before?.state !== run.state && run.state === "finished") {
    note("The run is finished.");
    said.push(`The run is finished. ${describe(records.at(-1))}`);
  } else if (fresh.length && before && Date.now() - spoken > SPOKEN) {
    said.push(describe(records.at(-1)));
    spoken = Date.now();
  }
  if (said.length) $("announcer").textContent = said.join(" ");
}

const why = (site) => (site.reason ? `: ${site.reason}` : "");

function describe(record) {
  const parts = [`Round ${record.round} of ${run.study.rounds}`];
  if (record.accuracy != null) parts.push(`accuracy ${percent(record.accuracy)}`);
  if (record.validation != null) parts.push(`validation ${percent(record.validation)}`);
  if (record.seconds != null) parts.push(duration(record.seconds));
  if (record.sat_out.length) parts.push(`sat out: ${some(record.sat_out)}`);
  const failed = Object.keys(record.failed);
  if (failed.length) parts.push(`no answer from ${some(failed)}`);
  return parts.join(", ");
}

function some(names) {
  const shown = names.slice(0, 6).join(", ");
  return names.length > 6 ? `${shown} and ${names.length - 6} more` : shown;
}

// ---------------------------------------------------------------- showing

const STATES = {
  starting: () => "Waiting for the first round.",
  running: () => "Running.",
  finishing: () => "All rounds are done; the model is being written.",
  finished: () => `Finished after ${duration(run.elapsed)} of training.`,
  quiet: () => `No new round for ${duration(run.silent)}: the run is slow, or it has stopped. `
    + "A stopped run goes on with potluck resume.",
};

function showProgress() {
  const { study, done } = run;
  document.title = `${done}/${study.rounds} ${study.name} – Potluck`;
  $("name").textContent = study.name;
  $("about").textContent = `${study.method}, ${study.federated}, ${study.model}, seed ${study.seed}; run folder ${run.folder}`;
  $("state").textContent = STATES[run.state]();
  $("progress").max = study.rounds;
  $("progress").value = done;
  $("round").textContent = `${done} of ${study.rounds}`;
  const scored = records.findLast((record) => record.accuracy != null);
  $("accuracy").textContent = percent(scored?.accuracy);
  $("left").textContent = run.state === "finished" ? "none" : duration(run.left);
  const sites = run.sites.filter((site) => !site.server);
  const absent = sites.filter((site) => !site.present);
  $("present").textContent = sites.length ? `${sites.length - absent.length} of ${sites.length}` : "–";
  $("absences").textContent = absent.length ? `Absent: ${some(absent.map((site) => site.name))}.`
    : sites.length ? "Every site is present." : "No site has been heard of yet.";
}

function showAll() {
  if (chosen === null && run.sites.length) {
    chosen = run.sites.length <= COLOURS ? run.sites.map((site) => site.name) : [];
  }
  $("cursor").max = Math.max(1, records.length);
  $("cursor").disabled = records.length === 0;
  showMetrics();
  showRounds();
  showSites();
  showCurves();
}

// A curve's text alternative.
function summarise(title, values, show) {
  const known = values.filter((value) => value != null);
  if (known.length === 0) return `${title}: nothing yet.`;
  const range = `from ${show(Math.min(...known))} to ${show(Math.max(...known))}`;
  return `${title} over ${values.length} rounds: at first ${show(known[0])}, latest ${show(known.at(-1))}, ${range}.`;
}

function showCurves() {
  if (run === null) return;
  $("cursor").value = cursor ?? 1;
  const record = cursor === null ? null : records[cursor - 1];
  const text = record ? describe(record) : "";
  $("cursor-text").textContent = text;
  $("cursor").setAttribute("aria-valuetext", text || "no round yet");

  const rounds = run.study.rounds;
  const common = { rounds, cursor };
  const share = (value, size) => (size ? `${onAxis(100 * value, 100 * size)} %` : percent(value));
  const plain = (value, size) => (size ? onAxis(value, size) : number(value));
  const accuracies = records.map((one) => one.accuracy), checks = records.map((one) => one.validation);
  const validated = checks.some((value) => value != null);
  const curves = [{ name: validated ? "test" : "", className: "s0", values: accuracies }];
  if (validated) curves.push({ name: "validation", className: "s1", values: checks });
  const also = validated ? ` ${summarise("Validation", checks, percent)}` : "";
  draw($("accuracy-chart"), curves, {
    ...common, bounds: [0, 1], show: share,
    summary: summarise("Accuracy on the test set", accuracies, percent) + also,
  });
  const losses = records.map((one) => one.loss);
  draw($("loss-chart"), [{ name: "", className: "s0", values: losses }], {
    ...common, bounds: [0, null], show: plain, summary: summarise("Loss on the test set", losses, number),
  });
  showSiteCurves(common, share, plain);
}

const metric = () => $("metric").value || "loss";
const valuesOf = (name) => records.map((record) => record.sites[name]?.[metric()] ?? null);
const colourOf = (name) => (chosen.includes(name) ? `s${chosen.indexOf(name) % COLOURS}` : "faint");

function showSiteCurves(common, share, plain) {
  const many = run.sites.length > COLOURS;
  const faint = run.sites.filter((site) => !chosen.includes(site.name));
  const series = faint.map((site) => ({ name: "", className: "faint", values: valuesOf(site.name) }));
  if (many) series.push({ name: "median", className: "middle", values: medians() });
  for (const name of chosen ?? []) series.push({ name, className: colourOf(name), values: valuesOf(name) });
  const isRate = isShare(metric());
  const text = many
    ? summarise(`Median of the sites' ${metricName(metric())}`, medians(), isRate ? percent : number)
    : run.sites.map((site) => summarise(site.name, valuesOf(site.name), isRate ? percent : number)).join(" ");
  $("sites-caption").textContent = `${metricName(metric())} at each site`.replace(/^./, (c) => c.toUpperCase())
    + (many ? " (grey: one line a site; choose sites in the table)" : "");
  draw($("sites-chart"), series, {
    ...common, bounds: isRate ? [0, 1] : [null, null], show: isRate ? share : plain,
    summary: `${text} The table below has each site's latest value.`,
  });
}

function medians() {
  return records.map((record) => {
    const values = Object.values(record.sites).map((site) => site[metric()]).filter((value) => value != null).sort((a, b) => a - b);
    return values.length ? values[Math.floor(values.length / 2)] : null;
  });
}

function showMetrics() {
  const keys = new Set(records.flatMap((record) => Object.values(record.sites).flatMap(Object.keys)));
  const names = ["loss", ...[...keys].filter((key) => key !== "loss").sort()];
  const select = $("metric");
  if ([...select.options].map((option) => option.value).join() === names.join()) return;
  const kept = select.value;
  select.replaceChildren(...names.map((key) => new Option(metricName(key), key)));
  if (names.includes(kept)) select.value = kept;
}

function cells(...contents) {
  return contents.map((content) => {
    const cell = document.createElement("td");
    cell.append(content);
    return cell;
  });
}

function rowHead(content) {
  const head = document.createElement("th");
  head.scope = "row";
  head.append(content);
  return head;
}

function showRounds() {
  $("rounds").tBodies[0].replaceChildren(...records.toReversed().map((record) => {
    const row = document.createElement("tr");
    const took = `${Object.keys(record.sites).length} trained`
      + (record.sat_out.length ? `, ${record.sat_out.length} sat out` : "");
    row.append(rowHead(String(record.round)), ...cells(
      percent(record.accuracy), number(record.loss), percent(record.validation), number(record.seconds), took));
    return row;
  }));
}

function status(site) {
  const shown = document.createElement("span");
  if (!site.present) {
    shown.className = "absent";
    const since = site.since ? ` since ${clock(site.since)}` : "";
    shown.textContent = `○ absent${since}${why(site)}`;
  } else if (site.server) {
    shown.textContent = "the server's own data";
  } else {
    shown.className = "here";
    const out = records.at(-1)?.sat_out.includes(site.name);
    shown.textContent = out ? "● present, sat out" : "● present";
  }
  return shown;
}

// Rows are kept and refilled, so that the button that has the focus keeps it.
function showSites() {
  const body = $("sites").tBodies[0];
  const name = metricName(metric());
  $("metric-head").textContent = `Latest ${name}`;
  run.sites.forEach((site, i) => {
    const row = body.rows[i] ?? body.insertRow();
    if (!row.cells.length) {
      const button = document.createElement("button");
      button.type = "button";
      button.addEventListener("click", () => toggle(button.dataset.site));
      row.append(rowHead(button), ...cells("", "", "", "", ""));
    }
    const button = row.querySelector("button");
    button.dataset.site = site.name;
    button.textContent = site.name;
    button.title = "Show or hide this site's curve in colour";
    button.setAttribute("aria-pressed", String(chosen.includes(site.name)));
    button.className = `toggle ${colourOf(site.name)}`;
    const values = valuesOf(site.name);
    const latest = last(values);
    const value = latest < 0 ? "–" : isShare(metric()) ? percent(values[latest]) : number(values[latest]);
    const took = records.filter((record) => site.name in record.sites).length;
    row.cells[1].textContent = site.labels || "–";
    row.cells[2].replaceChildren(status(site));
    row.cells[3].textContent = String(took);
    row.cells[4].textContent = value;
    row.cells[5].replaceChildren(sparkline(values, run.study.rounds, colourOf(site.name)));
  });
  while (body.rows.length > run.sites.length) body.deleteRow(-1);
}

// ---------------------------------------------------------------- what the reader does

function toggle(name) {
  if (chosen.includes(name)) chosen = chosen.filter((other) => other !== name);
  else chosen = [...chosen, name].slice(-COLOURS);
  showSites();
  showCurves();
}

function lookAt(round) {
  if (!records.length) return;
  cursor = Math.max(1, Math.min(records.length, round));
  follow = cursor === records.length;
  showCurves();
}

$("cursor").addEventListener("input", () => lookAt(Number($("cursor").value)));
$("metric").addEventListener("change", () => { showSites(); showCurves(); });
for (const id of ["accuracy-chart", "loss-chart", "sites-chart"]) {
  $(id).addEventListener("pointermove", (event) => $(id).roundAt && lookAt($(id).roundAt(event.clientX)));
  $(id).addEventListener("pointerleave", () => lookAt(records.length));
}
new ResizeObserver(showCurves).observe($("main"));
ask();
