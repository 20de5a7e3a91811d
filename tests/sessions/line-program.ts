/**
 * A small program as the agent of a session: it reads a line for each turn, writes it into a file and answers with
 * how many it has read in this life and how many stand in the file. The first lives in its memory alone.
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
