/** Parses a user's crontab, or the system's with its column for users (crontab(5)). */
import { shellCommand, unescapedPercent } from "./command.ts";
import { readFields, readNickname } from "../../triggers/cron-names.ts";

/** A line of a crontab as a job. */
export interface CrontabEntry {
  /** Counted from 1. */
  readonly line: number;
  readonly trigger: string;
  /** From `CRON_TZ` above the line; empty for local time. */
  readonly timeZone: string;
  /** For `/bin/sh -c`. */
  readonly command: string;
  /** The command as in the crontab without its input, from which a name can be derived. */
  readonly written: string;
  /** The comment lines right above. */
  readonly comment: string;
}

/** A remark on a line: why it cannot be a job, or what differs as a job. */
export interface CrontabRemark {
  readonly line: number;
  readonly text: string;
}

export interface Crontab {
  readonly entries: readonly CrontabEntry[];
  readonly problems: readonly CrontabRemark[];
  readonly notes: readonly CrontabRemark[];
}

export interface CrontabOptions {
  /** Whether each line names its user after the time, as in /etc/crontab. */
  readonly withUsers: boolean;
  /** The user that jobs run as by default. */
  readonly ownUser: string;
}

/** The longest comment of a job. */
const maxCommentLength = 1024;

export function readCrontab(text: string, options: CrontabOptions): Crontab {
  const reader = new CrontabReader(options);
  text.split(/\r?\n/).forEach((line, at) => reader.read(line.trim(), at + 1));
  return reader;
}

/** Variables and comments apply to the lines below them. */
class CrontabReader implements Crontab {
  readonly entries: CrontabEntry[] = [];
  readonly problems: CrontabRemark[] = [];
  readonly notes: CrontabRemark[] = [];
  readonly #options: CrontabOptions;
  readonly #variables = new Map<string, string>();
  #shell = "/bin/sh";
  #timeZone = "";
  #comments: string[] = [];

  constructor(options: CrontabOptions) {
    this.#options = options;
  }

  read(text: string, line: number): void {
    if (text.startsWith("#")) {
      this.#comments.push(text.replace(/^#+\s*/, ""));
      return;
    }
    const variable = readVariable(text);
    if (variable !== undefined) this.#setVariable(...variable, line);
    else if (text !== "") this.#readJob(text, line);
    this.#comments = [];
  }

  #setVariable(name: string, value: string, line: number): void {
    switch (name) {
      case "MAILTO":
      case "MAILFROM":
        this.#note(
          line,
          `${name} is ignored: svc sends no mail; it stores the output instead (svc schedule runs JOB --output)`,
        );
        return;
      case "SHELL":
        this.#shell = value;
        if (value !== "/bin/sh")
          this.#note(line, `SHELL is ${value}: the jobs below run ${value} from /bin/sh`);
        return;
      case "CRON_TZ":
        this.#timeZone = value.replace(/^:/, "");
        return;
      case "TZ":
        this.#note(line, "TZ applies to the commands, not to their times; for those, cron has CRON_TZ");
        break;
      case "PATH":
        this.#note(line, "PATH is set in the command of each job below");
        break;
      case "RANDOM_DELAY":
        this.#note(
          line,
          "RANDOM_DELAY is ignored: set a delay for each job with svc schedule edit JOB --jitter 10m",
        );
        return;
    }
    if (/^[A-Za-z_]\w*$/.test(name)) this.#variables.set(name, value);
    else this.problems.push({ line, text: `"${name}" is not a valid variable name` });
  }

  #readJob(text: string, line: number): void {
    // With a leading hyphen, cron does not log the run.
    const [words, rest] = takeWords(text.replace(/^-/, ""), text.startsWith("@") ? 1 : 5);
    const time = text.startsWith("@") ? readNickname(words[0] ?? "") : { trigger: readFields(words) };
    if ("problem" in time) {
      this.problems.push({ line, text: time.problem });
      return;
    }
    const [user, written] = this.#options.withUsers ? takeUser(rest) : [undefined, rest];
    if (written === "") {
      const what = this.#options.withUsers ? "a time, a user and a command" : "a time and a command";
      this.problems.push({ line, text: `"${text}" must be ${what}` });
      return;
    }
    if (user !== undefined && !/^[A-Za-z_][\w.-]*\$?$/.test(user)) {
      this.problems.push({ line, text: `"${user}" is not a valid user name` });
      return;
    }
    if (startsBackgroundProcess(written)) {
      this.#note(
        line,
        "background processes (nohup, setsid, &) are stopped when the command exits: to keep them, redirect their output to a file and use svc schedule edit JOB --keep-children",
      );
    }
    this.entries.push({
      line,
      trigger: time.trigger,
      timeZone: this.#timeZone,
      command: shellCommand({
        text: written,
        variables: this.#variables,
        shell: this.#shell,
        user: user === this.#options.ownUser ? undefined : user,
      }),
      written: written.split(unescapedPercent, 1)[0] ?? "",
      comment: this.#takeComment(),
    });
  }

  /** The comment lines above, without the column headings that crontabs often begin with. */
  #takeComment(): string {
    return this.#comments
      .filter((comment) => comment !== "" && !/^m(in(ute)?)?\s+h(our)?\s/.test(comment))
      .join("\n")
      .slice(0, maxCommentLength);
  }

  #note(line: number, text: string): void {
    this.notes.push({ line, text });
  }
}

/** Parses `NAME = value`, where both may be quoted. A time never matches this. */
function readVariable(text: string): [name: string, value: string] | undefined {
  const found = /^(?:"([^"]+)"|'([^']+)'|([^\s="']+))\s*=\s*(.*)$/.exec(text);
  if (found === null) return undefined;
  const [, double, single, bare, value = ""] = found;
  return [double ?? single ?? bare ?? "", value.replace(/^(["'])(.*)\1$/, "$2")];
}

/** Whether the command seems to leave processes running in the background. */
function startsBackgroundProcess(command: string): boolean {
  if (/(^|[\s;&|("'])(nohup|setsid|disown|start-stop-daemon|daemonize)($|[\s;&|)"'])/.test(command))
    return true;
  const unquoted = command.replace(/\\.|'[^']*'|"(?:\\.|[^"\\])*"/g, "");
  // Neither `&&` nor a redirection, such as `2>&1`.
  return /(^|[^&<>|])&($|[^&>])/.test(unquoted) && !/(^|[\s;&|])wait($|[\s;&|])/.test(unquoted);
}

function takeWords(text: string, count: number): [words: readonly string[], rest: string] {
  const words: string[] = [];
  let rest = text;
  while (words.length < count && rest !== "") {
    const end = rest.search(/\s|$/);
    words.push(rest.slice(0, end));
    rest = rest.slice(end).trimStart();
  }
  return [words, rest];
}

function takeUser(text: string): [user: string, rest: string] {
  const [[user = ""], rest] = takeWords(text, 1);
  return [user, rest];
}
