# All-reduce over the GPUs of the box, 16 bytes and $2 bytes: what all_reduce_perf of nccl-tests says of it as JSON is the last line.
# Arguments: how many GPUs, the larger size, and by what factor it is larger than 16 bytes.
set -eu
folder=$(mktemp -d)
# Its report tells all of its environment: so it gets little.
env -i PATH="$PATH" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" \
    all_reduce_perf -g "$1" -b 16 -e "$2" -f "$3" -w 5 -n 20 -c 1 -J "$folder/report.json" >&2
tr -d '\n' <"$folder/report.json"
echo
