/** Explains failures of compose from its output. */

/** Lines of output to consider. */
const maxLines = 20;

/** Why compose failed, in the engine's words if the engine rejected the request. */
export function reasonOf(lines: readonly string[]): string {
  const telling = lines.filter((line) => !/^ERROR: Encountered errors/.test(line));
  const said = telling
    .map((line) => /(?:Error response from daemon: |^ERROR: for \S+ +)(.+)$/.exec(line)?.[1])
    .findLast((words) => words !== undefined);
  const likely = telling.findLast((line) => /error|cannot|failed|denied|invalid/i.test(line));
  return said ?? likely ?? telling.at(-1) ?? "compose failed";
}

/** Docker-compose 1.29 of Debian 12 does not support `name`, and complains about the format's version instead. */
export function configFailure(output: string): string {
  return output.includes("'name' does not match any of the regexes")
    ? 'this docker-compose is too old for "name" at the top: delete that line (svc names the project), or install compose 2'
    : output || "compose rejects it";
}

export function lastLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .slice(-maxLines);
}
