#!/usr/bin/env bash
# A coordinator and three sites as separate processes on one machine, from keys to the final model.
#   examples/consortium/run.sh [FOLDER]      needs potluck[network] on the PATH; takes about a minute
# PORT is where sites connect; LISTEN, where the coordinator listens, if something stands between.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-consortium-run}
port=${PORT:-8500}
listen=${LISTEN:-$port}
rounds=${ROUNDS:-4}
sites="wards registry hospital"
export OMP_NUM_THREADS=1 # four processes share this machine's cores

mkdir -p "$work"
cp -r "$here/study.toml" "$here/sites" "$work"
python "$here/make_data.py" "$work"
cd "$work"

# 1. The coordinator makes keys, and gives each site its folder.
potluck keys keys --host 127.0.0.1 --port "$port" --site wards --site registry --site hospital

# 2. Each site checks its data and waits for the coordinator. In real life: on its own machine.
pids=()
leave() { # what Ctrl-C does, for those that are still there
    for pid in "${pids[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    wait
}
trap leave EXIT
set -m # background processes of their own, which can be interrupted
for site in $sites; do
    potluck join "sites/$site.toml" --invitation "keys/sites/$site" >"$site.log" 2>&1 &
    pids+=($!)
done

# 3. The coordinator admits them, shows what each brings, and trains.
potluck coordinate study.toml --keys keys/coordinator --bind 127.0.0.1 --port "$listen" \
    --out run -o rounds="$rounds"

# 4. The model is a run folder like any other.
potluck evaluate run
