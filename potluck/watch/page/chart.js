// Curves over rounds, drawn as SVG.
//
// A series is { name, className, values } with one value (or null) per round, the first at round 1.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 230;
const LEFT = 52, TOP = 10, BOTTOM = 34;

export function element(tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

// A round step for an axis that has about `count` ticks over `span`.
function step(span, count) {
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
}

// The ends of the axis and its ticks, around the values that there are.
export function ticks(low, high, count) {
  if (low === high) { low -= 0.5; high += 0.5; }
  const size = step(high - low, count);
  const first = Math.floor(low / size + 1e-9), last = Math.ceil(high / size - 1e-9);
  const at = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * size);
  return { low: first * size, high: last * size, at, size };
}

const known = (value) => value !== null && value !== undefined;

// One line through the rounds that have a value; a site is not in every round.
function path(values, x, y) {
  const points = values.map((value, i) => known(value) && `${x(i + 1).toFixed(1)},${y(value).toFixed(1)}`);
  return `M${points.filter(Boolean).join("L")}`;
}

export const last = (values) => values.findLastIndex(known);

// Places for labels of height `gap` near where they want to be, in order and without overlap.
function spread(wanted, gap, low, high) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  const placed = [...wanted];
  let floor = low;
  for (const i of order) { placed[i] = Math.max(placed[i], floor); floor = placed[i] + gap; }
  let roof = high;
  for (const i of order.reverse()) { placed[i] = Math.min(placed[i], roof); roof = placed[i] - gap; }
  return placed;
}

// Draw series into an <svg>.
//   rounds: how many rounds the axis is long;  cursor: the round to mark, or null
//   bounds: [low, high] that the axis must not pass, each may be null
//   show: turns a value into text
export function draw(svg, all, { rounds, cursor, bounds, show, summary }) {
  const width = Math.max(240, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("height", HEIGHT);
  svg.setAttribute("aria-label", summary);
  svg.replaceChildren();

  const series = all.filter((one) => last(one.values) >= 0);
  const values = series.flatMap((one) => one.values).filter(known);
  if (values.length === 0) {
    svg.append(element("text", { x: LEFT, y: HEIGHT / 2 }, "nothing to show yet"));
    return;
  }
  const labelled = series.filter((one) => one.name);
  const longest = Math.max(0, ...labelled.map((one) => one.name.length));
  const right = labelled.length ? Math.min(width * 0.3, 16 + 8 * Math.min(longest, 20)) : 12;

  const scale = ticks(Math.min(...values), Math.max(...values), 5);
  if (bounds[0] !== null) scale.low = Math.max(scale.low, bounds[0]);
  if (bounds[1] !== null) scale.high = Math.min(scale.high, bounds[1]);
  const bottom = HEIGHT - BOTTOM, end = width - right;
  const x = (round) => LEFT + ((round - 1) / Math.max(1, rounds - 1)) * (end - LEFT);
  const y = (value) => bottom - ((value - scale.low) / (scale.high - scale.low)) * (bottom - TOP);

  for (const tick of scale.at.filter((tick) => tick >= scale.low - 1e-12 && tick <= scale.high + 1e-12)) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: end, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, show(tick, scale.size)));
  }
  const every = Math.max(1, step(rounds, Math.max(2, (end - LEFT) / 70)));
  for (let round = 1; round <= rounds; round = round === 1 && every > 1 ? every : round + every) {
    svg.append(element("text", { x: x(round), y: bottom + 16, "text-anchor": "middle" }, String(round)));
  }
  svg.append(element("line", { class: "axis", x1: LEFT, x2: end, y1: bottom, y2: bottom }));
  svg.append(element("text", { x: (LEFT + end) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, "round"));

  if (cursor !== null) {
    svg.append(element("line", { class: "at", x1: x(cursor), x2: x(cursor), y1: TOP, y2: bottom }));
  }
  for (const one of series) {
    svg.append(element("path", { class: `curve ${one.className}`, d: path(one.values, x, y) }));
  }
  const tips = labelled.map((one) => {
    const i = cursor !== null && one.values[cursor - 1] != null ? cursor - 1 : last(one.values);
    svg.append(element("circle", { class: `dot ${one.className}`, cx: x(i + 1), cy: y(one.values[i]), r: 4 }));
    return y(one.values[last(one.values)]);
  });
  const reach = x(Math.max(...series.map((one) => last(one.values))) + 1);
  spread(tips, 14, TOP + 4, bottom - 10).forEach((place, i) => {
    const name = labelled[i].name;
    const fits = Math.max(3, Math.floor((right - 16) / 8));
    const text = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
    const label = element("text", { class: `label ${labelled[i].className}`, x: reach + 8, y: place + 4 }, text);
    if (text !== name) label.append(element("title", {}, name));
    svg.append(label);
  });
  svg.roundAt = (left) => {
    const along = ((left - svg.getBoundingClientRect().left) / svg.clientWidth) * width;
    return Math.round(1 + ((along - LEFT) / (end - LEFT)) * Math.max(1, rounds - 1));
  };
}

// A small curve for a table row; the number beside it is its text.
export function sparkline(values, rounds, className) {
  const svg = element("svg", { viewBox: "0 0 144 26", "aria-hidden": "true", preserveAspectRatio: "none" });
  const there = values.filter(known);
  if (there.length > 1) {
    const low = Math.min(...there), span = Math.max(...there) - low || 1;
    const x = (round) => 2 + ((round - 1) / Math.max(1, rounds - 1)) * 140;
    const y = (value) => 23 - ((value - low) / span) * 20;
    svg.append(element("path", { class: `curve ${className}`, d: path(values, x, y), "vector-effect": "non-scaling-stroke" }));
  }
  return svg;
}
