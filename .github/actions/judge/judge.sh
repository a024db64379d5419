#!/usr/bin/env bash
# Judges PAIR by the steadycast in RUNNER_TEMP, and tells the workflow what came of it.
set -euo pipefail

steadycast=$RUNNER_TEMP/steadycast/bin/steadycast
out=$RUNNER_TEMP/judged

# Root keeps the time best. Without sudo a user namespace does, where the machine allows it; doctor says what it lacks.
as=()
if [[ $(id -u) -ne 0 ]] && sudo -n true 2>/dev/null; then
  as=(sudo -E env "PATH=$PATH")
fi
"${as[@]}" "$steadycast" doctor judge

words=(judge "$PAIR" --runs "$RUNS" -o "$out" --force)
[[ -z $NETWORKS ]] || words+=(--networks "$NETWORKS")
[[ -z $SECONDS_OF_CELL ]] || words+=(--seconds "$SECONDS_OF_CELL")
[[ -z $BASELINE ]] || words+=(--baseline "$BASELINE")
while IFS= read -r bound; do
  [[ -z $bound ]] || words+=(--fail-if "$bound")
done <<<"$FAIL_IF"
code=0
"${as[@]}" "$steadycast" "${words[@]}" || code=$?
[[ ${#as[@]} -eq 0 || ! -e $out ]] || sudo chown -R "$(id -u)" "$out"

if [[ -f $out/judge.json ]]; then
  end=end-$RANDOM$RANDOM$RANDOM
  {
    echo "json=$out/judge.json"
    echo "text<<$end"
    cat "$out/judge.txt"
    echo "$end"
  } >>"$GITHUB_OUTPUT"
  {
    echo '```text'
    cat "$out/judge.txt"
    echo '```'
  } >>"$GITHUB_STEP_SUMMARY"
fi
exit "$code"
