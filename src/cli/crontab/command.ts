/** Converts the command of a crontab line to a shell job with the same variables, shell, user and standard input. */

export interface CrontabCommand {
  /** The command as in the crontab, including `%`. */
  readonly text: string;
  /** Variables set above the line, exported with their values unchanged. */
  readonly variables: ReadonlyMap<string, string>;
  readonly shell: string;
  /** The user to run as, if not the job's owner. */
  readonly user?: string | undefined;
}

/**
 * The command for `/bin/sh -c`. The first unescaped `%` ends the command; the rest is its standard input, in
 * which each further `%` is a line break (crontab(5)).
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

/** Splits at each `%`; `\%` is a literal percent sign. A `%` at the end starts no new line. */
function splitAtPercent(text: string): string[] {
  const parts = text.split(unescapedPercent).map((part) => part.replaceAll("\\%", "%"));
  if (parts.length > 1 && parts.at(-1) === "") parts.pop();
  return parts;
}

/** Quotes a text as one word for a POSIX shell. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
