/**
 * A small program for a session. It reads a line for each turn, appends it to a file, and answers with the number of
 * lines it has read since its start (in memory) and the number of lines in the file.
 */
export const LINE_PROGRAM = `
n=0
while IFS= read -r line; do
  n=$((n + 1))
  printf '%s\\n' "$line" >> stdin.log
  turn=\${line#*'"turn":"'}
  turn=\${turn%%'"'*}
  printf 'remembered %s, written %s\\n' "$n" "$(wc -l < stdin.log | tr -d ' ')"
  printf '{"torpor":{"thread":"thread-of-%s"}}\\n' "$TORPOR_SESSION"
  printf '{"torpor":{"end":"%s"}}\\n' "$turn"
done
`;
