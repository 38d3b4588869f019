/** `svc audit`: who changed what. */
import type { Command } from "commander";
import { LostConnection } from "../logs/outage.ts";
import type { CommandContext } from "../context.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { ReportedError } from "../output/failure.ts";
import { parseCount } from "../input/option-values.ts";
import { parseUser, uidOfUser } from "../input/user-option.ts";
import { pagesOf } from "../pages.ts";
import type { RunCommand } from "../run-command.ts";
import { calls, type AuditRecord } from "../client/calls.ts";

interface AuditOptions {
  readonly limit: number;
  readonly method?: string;
  readonly uid?: number;
  readonly target?: string;
  readonly follow?: boolean;
  readonly verify?: boolean;
}

interface GivenOptions extends Omit<AuditOptions, "uid"> {
  readonly uid?: number | string;
}

/** The largest page that the daemon returns. */
const pageLimit = 1000;
const followIntervalMs = 1000;

export function addAuditCommand(parent: Command, run: RunCommand): void {
  parent
    .command("audit")
    .description("show who changed what; needs root")
    .option("-n, --limit <records>", "show the newest N records, at most 100000", parseCount(1, 100_000), 20)
    .option("--method <name>", "only calls of this method, such as StartApp")
    .option("--uid <user>", "only calls of this user, by name or number", parseUser)
    .option("--target <name>", "only calls about this target, such as an app ID")
    .option("-f, --follow", "print new records, until Ctrl-C")
    .option("--verify", "check the chain of hashes instead; exits with 1 if it is broken")
    .addHelpText(
      "after",
      "\nRecords are listed newest last. With --json they are newest first; with --follow, one per line.\n",
    )
    .action(
      run(async (context, { uid: user, ...options }: GivenOptions) => {
        const uid = typeof user === "string" ? await uidOfUser(context, user) : user;
        return showAudit(context, { ...options, ...(uid !== undefined && { uid }) });
      }),
    );
}

async function showAudit(context: CommandContext, options: AuditOptions): Promise<void> {
  if (options.verify === true) return verify(context);
  const records = await fetchRecords(context, options, options.limit);
  if (options.follow === true) return follow(context, options, records);
  return context.json ? context.printJson({ records }) : printRecords(context, records);
}

/** The newest records, newest first. */
async function fetchRecords(
  context: CommandContext,
  { method, uid, target }: AuditOptions,
  limit: number,
  afterSeq?: number,
): Promise<AuditRecord[]> {
  const found: AuditRecord[] = [];
  const pages = pagesOf(context, calls.listAudit, {
    limit: Math.min(limit, pageLimit),
    ...(method !== undefined && { method }),
    ...(uid !== undefined && { uid }),
    ...(target !== undefined && { target }),
    ...(afterSeq !== undefined && { after_seq: afterSeq }),
  });
  for await (const { records } of pages) {
    found.push(...records);
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}

async function follow(
  context: CommandContext,
  options: AuditOptions,
  first: readonly AuditRecord[],
): Promise<void> {
  const outage = new LostConnection(context);
  let fresh = first;
  let lastSeq = 0;
  for (;;) {
    lastSeq = fresh[0]?.seq ?? lastSeq;
    if (context.json) for (const record of fresh.toReversed()) await context.printJsonLine(record);
    else await printRecords(context, fresh, fresh === first);
    await context.pause(followIntervalMs);
    fresh = await outage.retry(() => fetchRecords(context, options, Infinity, lastSeq));
  }
}

/** @param newestFirst printed in reverse order, newest last, like a log */
function printRecords(
  context: CommandContext,
  newestFirst: readonly AuditRecord[],
  withTitles = true,
): Promise<void> {
  if (newestFirst.length === 0 && !withTitles) return Promise.resolve();
  const isTitled = withTitles || context.options.quiet === true;
  const table = context.table<AuditRecord>(
    [
      { title: "TIME", value: ({ time }) => time ?? "" },
      { title: "WHO", value: callerText, shrinkTo: 12 },
      { title: "METHOD", value: ({ method }) => shortName(method), shrinkTo: 12 },
      { title: "TARGET", value: ({ target }) => target, shrinkTo: 12 },
      {
        title: "RESULT",
        value: ({ result, reason, attempts }) =>
          `${reason === "" ? result : `${result} (${reason})`}${attempts > 1 ? ` ×${attempts}` : ""}`,
        color: ({ result }) => (result === "ok" ? undefined : "red"),
        shrinkTo: 6,
      },
      { title: "MS", value: (record) => String(record.duration_ms), align: "right", dispensable: 2 },
      { title: "PROTOCOL", value: ({ protocol }) => protocol, dispensable: 3 },
      { title: "REQUEST", value: (record) => record.request_id, shrinkTo: 8, dispensable: 4 },
    ],
    newestFirst.toReversed(),
  );
  return context.print(isTitled ? table : table.slice(table.indexOf("\n") + 1));
}

/** `AppService.StartApp`, as the command line spells methods. */
function shortName(method: string): string {
  return method.replace(/^svc\.v1\./, "").replace("/", ".");
}

/** `ann (1000)`, `root (0) for ann's uid`, `root (0) token 1a2b…`, `nobody at 127.0.0.1`. */
function callerText({
  uid,
  user,
  kind,
  address,
  owner_uid: ownerUid,
  token_digest: digest,
}: AuditRecord): string {
  if (kind === "anonymous") return `nobody at ${address}`;
  const name = user === "" ? String(uid) : `${user} (${uid})`;
  const owner = ownerUid === undefined ? "" : ` for ${ownerUid}`;
  return `${name}${owner}${digest === "" ? "" : ` token ${digest}`}`;
}

async function verify(context: CommandContext): Promise<void> {
  const found = await context.call(calls.verifyAudit, {});
  await (context.json
    ? context.printJson(found)
    : context.printFields([
        ["chain", found.valid ? "holds" : "broken", found.valid ? "green" : "red"],
        ["problem", found.problem],
        ["records", String(found.records)],
        ["newest", `${found.head_seq} ${found.head_hash}`],
        ["pruned up to", found.anchor_seq === 0 ? "" : `${found.anchor_seq} ${found.anchor_hash}`],
      ]));
  if (!found.valid) throw new ReportedError(exitCodes.failed);
}
