/** Reads a crontab (crontab(5)), that of a user or the system's with its column of users. */
import { shellCommand, unescapedPercent } from "./command.ts";
import { readFields, readNickname } from "./trigger.ts";

/** A line of a crontab as a job. */
export interface CrontabEntry {
  /** Counted from 1. */
  readonly line: number;
  readonly trigger: string;
  /** As `CRON_TZ` or `TZ` above the line say; empty for local time. */
  readonly timeZone: string;
  /** For `/bin/sh -c`. */
  readonly command: string;
  /** The command as the crontab has it, without its input: a name can be made from it. */
  readonly written: string;
  /** What the comment lines right above it say. */
  readonly comment: string;
}

/** Something about a line: why it cannot be a job, or what is different as one. */
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
  /** Each line names its user behind the time, as in /etc/crontab. */
  readonly withUsers: boolean;
  /** The user that jobs run as anyway. */
  readonly ownUser: string;
}

/** The longest comment of a job. */
const maxCommentLength = 1024;

export function readCrontab(text: string, options: CrontabOptions): Crontab {
  const reader = new CrontabReader(options);
  text.split(/\r?\n/).forEach((line, at) => reader.read(line.trim(), at + 1));
  return reader;
}

/** Variables and comments count for the lines below them. */
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
          `${name} is left out: nothing is mailed, output is kept (svc schedule runs JOB --output)`,
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
        this.#timeZone = value.replace(/^:/, "");
        break;
      case "PATH":
        this.#note(line, "PATH is set in the command of each job below");
        break;
      case "RANDOM_DELAY":
        this.#note(
          line,
          "RANDOM_DELAY is left out: give a job its own with svc schedule edit JOB --jitter 10m",
        );
        return;
    }
    if (/^[A-Za-z_]\w*$/.test(name)) this.#variables.set(name, value);
    else this.problems.push({ line, text: `"${name}" is no name that a shell can export` });
  }

  #readJob(text: string, line: number): void {
    const [words, rest] = takeWords(text, text.startsWith("@") ? 1 : 5);
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
      this.problems.push({ line, text: `"${user}" is no user name` });
      return;
    }
    if (leavesBehind(written)) {
      this.#note(
        line,
        "what a command leaves behind (nohup, setsid, &) is ended with it: let it run on with svc schedule edit JOB --keep-children, its output going to a file",
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

  /** The comment lines above, but for the titles of columns that crontabs begin with. */
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

/** `NAME = value`, either in quotes if it likes; a time cannot look like it. */
function readVariable(text: string): [name: string, value: string] | undefined {
  const found = /^(?:"([^"]+)"|'([^']+)'|([^\s="']+))\s*=\s*(.*)$/.exec(text);
  if (found === null) return undefined;
  const [, double, single, bare, value = ""] = found;
  return [double ?? single ?? bare ?? "", value.replace(/^(["'])(.*)\1$/, "$2")];
}

/** Whether it looks as if something is to run on when the command has ended. */
function leavesBehind(command: string): boolean {
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
