/** The logs of a test's running daemons and engines, for the message of a failed wait. */

const lastLines = 15;
const logs = new Map<string, () => string>();

/** @param name identifies it, such as its directory; replaces the log of the same name */
export function showLog(name: string, read: () => string): void {
  logs.set(name, read);
}

export function hideLog(name: string): void {
  logs.delete(name);
}

/** The last lines of each log; empty if nothing runs. */
export function liveLogs(): string {
  return [...logs].map(([name, read]) => `\n--- last log lines of ${name}:\n${lastLinesOf(read())}`).join("");
}

function lastLinesOf(text: string): string {
  return text.trimEnd().split("\n").slice(-lastLines).join("\n");
}
