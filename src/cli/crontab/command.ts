/** The command of a crontab line, as a shell job runs it: the same variables, shell, user and standard input. */

export interface CrontabCommand {
  /** As it stands in the crontab, `%` and all. */
  readonly text: string;
  /** Set above it; exported to it with their values as they are. */
  readonly variables: ReadonlyMap<string, string>;
  readonly shell: string;
  /** Runs it, where that is another user than the job's. */
  readonly user?: string | undefined;
}

/**
 * The command for `/bin/sh -c`. The first `%` without a backslash ends the command, and what follows is its standard input,
 * where each further `%` ends a line (crontab(5)).
 */
export function shellCommand({ text, variables, shell, user }: CrontabCommand): string {
  const [command = "", ...input] = splitAtPercent(text);
  const exports = [...variables].map(([name, value]) => `${name}=${quote(value)}`);
  let line = command.trim();
  const needsShell = shell !== "/bin/sh" || user !== undefined || input.length > 0;
  if (needsShell) line = `${/^[\w./-]+$/.test(shell) ? shell : quote(shell)} -c ${quote(line)}`;
  if (user !== undefined) line = `runuser -u ${user} -- ${line}`;
  if (input.length > 0) line = `printf '%s\\n' ${input.map(quote).join(" ")} | ${line}`;
  return exports.length === 0 ? line : `export ${exports.join(" ")}; ${line}`;
}

export const unescapedPercent = /(?<!\\)%/;

/** Cut at each `%`; `\%` is one. A `%` at the very end begins no line. */
function splitAtPercent(text: string): string[] {
  const parts = text.split(unescapedPercent).map((part) => part.replaceAll("\\%", "%"));
  if (parts.length > 1 && parts.at(-1) === "") parts.pop();
  return parts;
}

/** One word for a POSIX shell. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
