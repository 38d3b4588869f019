/** `svc file du|find|grep|tail`. */
import type { Command } from "commander";
import type { DirectoryUsage, FileMatch } from "../../../../gen/svc/v1/file_pb.ts";
import type { CommandContext } from "../../context.ts";
import { ReportedError, UsageError } from "../../output/failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { ByteOutput } from "../../output/byte-output.ts";
import { formatBytes } from "../../output/units.ts";
import { pathHelp, resolvePath } from "./paths.ts";

interface LookOptions {
  readonly all?: boolean;
  readonly ignoreCase?: boolean;
  readonly limit?: string;
}

interface GrepOptions extends LookOptions {
  readonly regexp?: boolean;
  readonly name?: string;
}

interface SearchRequest extends LookOptions {
  readonly name: string;
  readonly content: string;
  readonly regex: boolean;
}

const patternHelp = "* matches any characters, ? one, [a-z] one in this range";

export function addSearchCommands(parent: Command, run: RunCommand): void {
  parent
    .command("du")
    .description("show disk usage of a directory and those below it")
    .argument("<path>", pathHelp)
    .option("-d, --depth <levels>", "levels of directories to show (default: 1)")
    .action(run(usage));
  const find = parent
    .command("find")
    .description("find files by name, in a directory and everything below")
    .argument("<path>", pathHelp)
    .argument("<name>", `pattern of names: ${patternHelp}`);
  const grep = parent
    .command("grep")
    .description("find lines in files, in a directory and everything below")
    .argument("<text>", "text to search for")
    .argument("<path>", pathHelp)
    .option("-E, --regexp", "the text is a regular expression (RE2)")
    .option("--name <pattern>", `only in files with names like this: ${patternHelp}`);
  for (const command of [find, grep]) {
    command
      .option("-a, --all", "include hidden files")
      .option("-i, --ignore-case", "ignore case")
      .option("--limit <count>", "limit for matches, up to 10000 (default: 1000)");
  }
  find.action(
    run((context, target: string, name: string, options: LookOptions) =>
      search(context, target, { name, content: "", regex: false, ...options }),
    ),
  );
  grep.action(
    run((context, content: string, target: string, { regexp = false, name = "", ...options }: GrepOptions) =>
      search(context, target, { name, content, regex: regexp, ...options }),
    ),
  );
  parent
    .command("tail")
    .description("show the last lines of a file; with -f also new lines")
    .argument("<path>", pathHelp)
    .option("-n, --lines <count>", "show the last N lines (default: 10)")
    .option("-f, --follow", "print new lines until Ctrl-C, even if the file is rotated")
    .action(run(tail));
}

const load = () =>
  Promise.all([import("../../../../gen/svc/v1/file_pb.ts"), import("../../client/rest-json.ts")]);

async function usage(
  context: CommandContext,
  target: string,
  { depth }: { readonly depth?: string },
): Promise<void> {
  const [{ DirectoryUsageSchema, FileService }, { messageToRest }] = await load();
  const path = await resolvePath(context, target);
  const request = { path, depth: numberOf("--depth", depth) };
  for await (const { event } of context.invoke(FileService.method.getDiskUsage, [request])) {
    if (event.case !== "directory" && event.case !== "result") continue;
    if (context.json) await context.printJsonLine(messageToRest(DirectoryUsageSchema, event.value));
    else await context.printLine(usageText(event.value));
    if (event.case === "result") noteFailed(context, event.value.failedCount);
  }
}

function usageText({ path, diskBytes }: DirectoryUsage): string {
  return `${formatBytes(Number(diskBytes)).padStart(10)}  ${path}`;
}

/** Like grep(1): exits with 1 if nothing was found. */
async function search(context: CommandContext, target: string, given: SearchRequest): Promise<void> {
  const [{ FileMatchSchema, FileService }, { messageToRest }] = await load();
  const { all = false, ignoreCase = false, limit, ...what } = given;
  const path = await resolvePath(context, target);
  const request = { path, ...what, hidden: all, ignoreCase, limit: numberOf("--limit", limit) };
  let matches = 0n;
  for await (const { event } of context.invoke(FileService.method.searchFiles, [request])) {
    if (event.case === "match") {
      if (context.json) await context.printJsonLine(messageToRest(FileMatchSchema, event.value));
      else await context.printLine(matchText(event.value));
    } else if (event.case === "result") {
      const { failedCount, truncated } = event.value;
      matches = event.value.matches;
      if (truncated) context.note(`svc: there may be more: raise --limit above ${matches}`);
      noteFailed(context, failedCount);
    }
  }
  if (matches === 0n) throw new ReportedError(1);
}

function matchText({ entry, line, text }: FileMatch): string {
  const path = entry?.path ?? "";
  return line === undefined ? path : `${path}:${line}:${text}`;
}

async function tail(
  context: CommandContext,
  target: string,
  { lines, follow = false }: { readonly lines?: string; readonly follow?: boolean },
): Promise<void> {
  const { FileService } = await import("../../../../gen/svc/v1/file_pb.ts");
  const request = { path: await resolvePath(context, target), lines: numberOf("--lines", lines), follow };
  const output = new ByteOutput(context.host.stdout);
  const method = FileService.method.tailFile;
  let isAgain = false;
  const begin = () => {
    // A file has no cursor, so lines written during the outage may be missing.
    if (isAgain) context.note("Continuing with lines written from now on.");
    const again = isAgain ? { lines: 0 } : {};
    isAgain = true;
    return { ...request, ...again };
  };
  for await (const { content } of follow
    ? context.follow(method, begin)
    : context.invoke(method, [request])) {
    if (content !== undefined && content.data.length > 0) await output.write(content.data);
  }
  await output.end();
}

function noteFailed(context: CommandContext, count: bigint): void {
  if (count > 0n) context.note(`svc: ${count} could not be read`);
}

/** @throws UsageError unless it is a whole number */
function numberOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${option} must be a whole number`);
  return Number(text);
}
