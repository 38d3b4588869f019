/** `svc backup policy ID [show|set|reset]`: automatic backups of an app. */
import { Argument, Option, type Command } from "commander";
import { BackupPolicyCatchUps, BackupPolicyModes } from "../../../../gen/svc/v1/values.ts";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../output/failure.ts";
import { collect, parseCount, triggerForms } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { escapeControls } from "../../output/escape.ts";
import { lastBackupText } from "../../output/app-table.ts";
import { inLocalTime, relativeTo } from "../../output/instant.ts";
import { calls, type BackupPolicy } from "../../client/calls.ts";
import type { CreateOptions } from "./create.ts";

interface PolicyOptions extends CreateOptions {
  readonly trigger?: string;
  readonly verify?: boolean;
  readonly catchUp?: string;
}

export function addPolicyCommand(parent: Command, run: RunCommand): void {
  const count = parseCount(1);
  parent
    .command("policy")
    .description("show or set the automatic backups of an app")
    .argument("<id>", "the app")
    .addArgument(
      new Argument("[action]", "set: change the given options; reset: use the package's recommendation")
        .choices(actions)
        // Any word: the app may follow the action.
        .argParser((word: string) => word)
        .default("show"),
    )
    .option("--trigger <when>", `when to back up: ${triggerForms}; empty: only on request`)
    .option("--storage <name>", "target storage (repeatable; default: unchanged)", collect)
    .option("--keep <count>", "keep the newest N archives on each storage", count)
    .option("--keep-daily <count>", "also keep one archive per day for N days", count)
    .option("--keep-weekly <count>", "also keep one archive per week for N weeks", count)
    .option("--keep-monthly <count>", "also keep one archive per month for N months", count)
    .addOption(
      new Option("--mode <mode>", "state of a running app during the backup").choices(BackupPolicyModes),
    )
    .option("--verify", "also restore each backup to a temporary directory")
    .option("--no-verify", "do not restore backups to test them")
    .addOption(
      new Option("--catch-up [which]", "back up once if backups were missed while the daemon was down")
        .choices(BackupPolicyCatchUps)
        .preset("latest"),
    )
    .addHelpText("after", examples)
    .action(
      run((context, first: string, second: string, options: PolicyOptions) =>
        actions.includes(first) && !actions.includes(second)
          ? policy(context, second, first, options)
          : policy(context, first, second, options),
      ),
    );
}

const actions = ["show", "set", "reset"];

const examples = `
Options that are not given stay unchanged.

Examples:
  svc backup policy hello
  svc backup policy hello set --trigger 03:30 --keep 7 --keep-weekly 4 --verify
  svc backup policy hello set --catch-up
  svc backup policy hello reset
`;

/** The options of `set`; all others are global. */
const settable = [
  "trigger",
  "storage",
  "keep",
  "keepDaily",
  "keepWeekly",
  "keepMonthly",
  "mode",
  "verify",
  "catchUp",
] as const satisfies readonly (keyof PolicyOptions)[];

async function policy(
  context: CommandContext,
  id: string,
  what: string,
  options: PolicyOptions,
): Promise<void> {
  if (!actions.includes(what))
    throw new UsageError(`unknown action "${what}"; choose one of: ${actions.join(", ")}`);
  const hasOptions = settable.some((option) => options[option] !== undefined);
  if (what !== "set" && hasOptions)
    throw new UsageError(`options require set: svc backup policy ${id} set …`);
  if (what === "set" && !hasOptions) throw new UsageError("pass an option to set, such as --trigger 03:30");
  const before = await context.call(calls.getBackupPolicy, { app_id: id });
  const answer =
    what === "show"
      ? before
      : await context.call(
          calls.setBackupPolicy,
          what === "reset" ? { app_id: id, from_package: true } : changed(before, options),
        );
  if (context.json) return context.printJson(answer);
  const app = await context.call(calls.getApp, { id });
  const nowMs = context.host.now();
  return context.print(textOf(answer, lastBackupText(app, nowMs), nowMs));
}

function changed(before: BackupPolicy, options: PolicyOptions): BackupPolicy {
  const { trigger, storage, keep, keepDaily, keepWeekly, keepMonthly, mode, verify, catchUp } = options;
  return {
    ...before,
    from_package: false,
    ...(trigger !== undefined && { trigger }),
    ...(storage !== undefined && { storages: [...storage] }),
    ...(keep !== undefined && { keep }),
    ...(keepDaily !== undefined && { keep_daily: keepDaily }),
    ...(keepWeekly !== undefined && { keep_weekly: keepWeekly }),
    ...(keepMonthly !== undefined && { keep_monthly: keepMonthly }),
    ...(mode !== undefined && { mode }),
    ...(verify !== undefined && { verify }),
    ...(catchUp !== undefined && { catch_up: catchUp }),
  };
}

/** @param last the result of the last backup */
function textOf(policy: BackupPolicy, last: string | undefined, nowMs: number): string {
  const { app_id: id, storages, mode, verify, next_run_at: next, last_error: error } = policy;
  const retention = [
    [policy.keep, "newest"],
    [policy.keep_daily, "days"],
    [policy.keep_weekly, "weeks"],
    [policy.keep_monthly, "months"],
  ].flatMap(([count, unit]) => (count === undefined ? [] : [`${count} ${unit}`]));
  const rows: [string, string][] = [
    ["App", id],
    ["Set by", policy.from_package ? "the package" : "the owner"],
    ["Trigger", whenOf(policy)],
    ["Last", last ?? "never"],
    ["Next", next === undefined ? "never" : nextText(next, nowMs)],
    ["Storage", storages.length === 0 ? "local" : storages.join(", ")],
    ["Keep", retention.length === 0 ? "all" : retention.join(", ")],
    ["Mode", verify ? `${mode}, with a trial restore` : mode],
    ...(error === "" ? [] : [["Error", error] satisfies [string, string]]),
  ];
  return rows.map(([title, text]) => `${`${title}:`.padEnd(8)} ${escapeControls(text)}\n`).join("");
}

function nextText(next: string, nowMs: number): string {
  const atMs = Date.parse(next);
  return `${inLocalTime(atMs)} (${relativeTo(nowMs)(atMs)})`;
}

function whenOf({ trigger, catch_up: catchUp }: BackupPolicy): string {
  if (trigger === "") return "only on request";
  return catchUp === "latest" ? `${trigger}, and once after missed backups` : trigger;
}
