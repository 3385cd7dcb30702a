#!/usr/bin/env bash
# `--engine slurm` on a real Slurm: starts a single-node cluster in a temporary folder, runs a small
# grid on it with a run that fails, one that is cancelled and one whose time is up, checks the results
# against the local engine's bits, and takes the cluster down again.
#
#   tests/slurm_single_node.sh             needs slurmctld, slurmd, munged (Debian: slurm-wlm munge)
#   tests/slurm_single_node.sh --install   installs those two packages first, with apt-get
#
# PYTHON names the interpreter that has ssmlbench[slurm]; the one on the PATH otherwise.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"
PYTHON=${PYTHON:-python3}
if [ "${1:-}" = "--install" ]; then
    apt-get install --yes slurm-wlm munge
fi
for program in slurmctld slurmd munged sbatch squeue; do
    command -v "$program" > /dev/null || {
        echo "error: there is no $program here; on Debian: apt-get install slurm-wlm munge, or --install" >&2
        exit 2
    }
done

HOME_OF_ALL=$(mktemp -d)
cd "$HOME_OF_ALL"
chmod 755 . && mkdir state spool munge plugins
export SSMLBENCH_CACHE="$HOME_OF_ALL/cache" OMP_NUM_THREADS=1 COLUMNS=160

pids=()
finish() {
    code=$?
    if [ $code -ne 0 ]; then tail -n 20 ./*.log 2> /dev/null || true; fi
    scancel --user="$(id -un)" 2> /dev/null || true
    sleep 1
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
    cd / && rm -rf "$HOME_OF_ALL"
    exit $code
}
trap finish EXIT

# ---------------------------------------------------------------- the cluster
dd if=/dev/urandom of=munge/key bs=1024 count=1 status=none
chmod 600 munge/key && chmod 755 munge
munged --foreground --force --key-file="$PWD/munge/key" --socket="$PWD/munge/socket" \
    --pid-file="$PWD/munge/pid" --log-file="$PWD/munged.log" --seed-file="$PWD/munge/seed" \
    > munged.log 2>&1 &
pids+=($!)
cat > slurm.conf << CONF
ClusterName=single
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=${CTLD_PORT:-26817}
SlurmdPort=${SLURMD_PORT:-26818}
AuthType=auth/munge
AuthInfo=socket=$PWD/munge/socket
CredType=cred/munge
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,batch_sched_delay=1
SlurmdParameters=config_overrides
JobRequeue=1
ReturnToService=2
MailProg=/bin/true
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$PWD/slurm.conf"
for _ in $(seq 50); do [ -S munge/socket ] && break; sleep 0.2; done
slurmctld -D -c > slurmctld.log 2>&1 &
pids+=($!)
slurmd -D > slurmd.log 2>&1 &
pids+=($!)

# until SECONDS COMMAND…: wait until it succeeds
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "error: waited in vain for: $*" >&2; exit 1; }
        sleep 0.5
    done
}
expect() { grep -qF -- "$2" <<< "$1" || { echo "error: expected '$2' in: $1" >&2; exit 1; }; }

node_is_idle() { sinfo --noheader --format=%T | grep -q idle; }
until_true 60 node_is_idle
echo "ok: Slurm $(sinfo --version | cut -d' ' -f2) is up"

# ---------------------------------------------------------------- the grid
export HOLD="$PWD/hold"
touch "$HOLD"
cat > plugins/tiny.py << 'PLUGIN'
import os
import time
import numpy as np
from ssmlbench.api import DatasetAdapter, Method, Row, bce


class Tiny(DatasetAdapter):
    """Vectors that say their labels."""
    name, kind, backbone = "tiny", "vector", "vector"

    def label_names(self):
        return ["a", "b", "c"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for _ in range({"train": 120, "test": 40}[split]):
            labels = np.flatnonzero(random.random(3) < 0.4)
            vector = np.isin(np.arange(8) // 2, labels) + 0.5 * random.normal(size=8)
            yield Row(vector.astype(np.float32), tuple(int(k) for k in labels))


class Slow(Method):
    """BCE that stands still after two epochs while a file is there, so that it can be stopped."""
    name = "slow"
    unlabelled_views = ()
    steps = 0

    def loss(self, labelled, unlabelled):
        self.steps += 1
        while self.steps > 12 and os.path.exists(os.environ["HOLD"]):
            time.sleep(0.1)
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}


class Broken(Slow):
    """Fails in its first step."""
    name = "broken"

    def loss(self, labelled, unlabelled):
        raise ArithmeticError("broken on purpose")
PLUGIN
run() {
    "$PYTHON" -m ssmlbench run --dataset tiny --pi 0.3 --epochs 16 --batch-size 16 \
        --plugin plugins/tiny.py "$@"
}
count() { # of the runs in state $1
    "$PYTHON" -m ssmlbench status --results results --format json |
        "$PYTHON" -c "import json, sys; print(sum(r['state'] == '$1' for r in json.load(sys.stdin)))"
}
is() { [ "$(count "$1")" -eq "$2" ]; }
grid() {
    run --method slow,bce,broken --seeds 2 --engine slurm --jobs 2 --slurm time=10 --slurm partition=all \
        --results results
}

said=$(grid)
expect "$said" "submitted 6 runs as job"
echo "ok: submitted a job array"
until_true 120 is running 2
echo "ok: two runs at a time, as --jobs says, and status sees them running"
said=$(grid)
expect "$said" "nothing to submit"
echo "ok: what is queued or running is not submitted again"

has_checkpoints() { [ "$(find results -name checkpoint.safetensors | wc -l)" -ge 2 ]; }
until_true 120 has_checkpoints
first=$(squeue --noheader --array --states=RUNNING --format=%i | sort | head -n 1)
second=$(squeue --noheader --array --states=RUNNING --format=%i | sort | tail -n 1)
scancel "$first"
# What Slurm sends when a job's time is nearly up. It may be queued again before scancel is content.
scancel --signal=USR2 "$second" 2> /dev/null || true
rm "$HOLD"
echo "ok: cancelled $first, and told $second that its time is up"

nothing_left() { [ -z "$(squeue --noheader)" ]; }
until_true 400 nothing_left
is failed 2 && is done 3 && is stopped 1 || { "$PYTHON" -m ssmlbench status --results results; exit 1; }
expect "$("$PYTHON" -m ssmlbench status --results results --failed)" "broken on purpose"
echo "ok: the failing runs stopped nobody, the one without time went on by itself, one is stopped"

said=$(grid)
expect "$said" "submitted 3 runs as job"
until_true 300 nothing_left
is failed 2 && is done 4 || { "$PYTHON" -m ssmlbench status --results results; exit 1; }
echo "ok: submitted again, the cancelled run was finished and the failed ones were tried again"

run --method slow,bce --seeds 2 --results undisturbed --quiet
(cd results && find . -name scores.safetensors | sort | xargs sha256sum) > one
(cd undisturbed && find . -name scores.safetensors | sort | xargs sha256sum) > two
cmp one two
echo "ok: the scores are the local engine's, bit by bit"

if said=$(run --method bce --seed 9 --engine slurm --slurm partition=none --results results 2>&1); then
    echo "error: a partition that does not exist was accepted" >&2
    exit 1
fi
expect "$said" "sbatch refuses"
[ "$(wc -l <<< "$said")" -eq 1 ] || { echo "error: more than one line: $said" >&2; exit 1; }
echo "ok: what sbatch refuses is one line"
echo "everything holds"
