/** `svc backup policy ID [show|set|reset]`: when an app is backed up by itself. */
import { Argument, Option, type Command } from "commander";
import { BackupPolicyCatchUps, BackupPolicyModes } from "../../../../gen/svc/v1/words.ts";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import { collect, parseCount } from "../../option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { escapeControls } from "../../render/escape.ts";
import { lastBackupText } from "../../render/last-backup.ts";
import { calls, type BackupPolicy } from "../../transport/calls.ts";
import type { CreateOptions } from "./create.ts";

interface PolicyOptions extends CreateOptions {
  readonly trigger?: string;
  readonly verify?: boolean;
  readonly catchUp?: string;
}

export function addPolicyCommand(parent: Command, run: RunCommand): void {
  const count = parseCount(1, 2 ** 32 - 1);
  parent
    .command("policy")
    .description("show or set when an app is backed up by itself")
    .argument("<id>", "the app")
    .addArgument(
      new Argument("[what]", "set what the options say, or reset to what the package recommends")
        .choices(["show", "set", "reset"])
        .default("show"),
    )
    .option("--trigger <when>", "hourly, HH:MM or five cron fields; empty: only on request")
    .option("--storage <name>", "where to; again for more (default: as before)", collect)
    .option("--keep <count>", "how many archives to keep there", count)
    .option("--keep-daily <count>", "beyond those, the newest of each of so many days", count)
    .option("--keep-weekly <count>", "and of so many weeks", count)
    .option("--keep-monthly <count>", "and of so many months", count)
    .addOption(new Option("--mode <mode>", "what a running app does meanwhile").choices(BackupPolicyModes))
    .option("--verify", "restore each for a trial, too")
    .option("--no-verify", "do not")
    .addOption(
      new Option("--catch-up [which]", "make the one that was missed while the daemon was down")
        .choices(BackupPolicyCatchUps)
        .preset("latest"),
    )
    .addHelpText("after", examples)
    .action(run(policy));
}

const examples = `
What set is not told stays as it is.

Examples:
  svc backup policy hello
  svc backup policy hello set --trigger 03:30 --keep 7 --keep-weekly 4 --verify
  svc backup policy hello set --catch-up
  svc backup policy hello reset
`;

/** The others are those of every command. */
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
  const isSaid = settable.some((option) => options[option] !== undefined);
  if (what !== "set" && isSaid) throw new UsageError(`options go with set: svc backup policy ${id} set …`);
  if (what === "set" && !isSaid) throw new UsageError("say what to set, such as --trigger 03:30");
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
  return context.print(textOf(answer, lastBackupText(app, context.host.now())));
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

/** @param last what is known of those that were made */
function textOf(policy: BackupPolicy, last = "never"): string {
  const { app_id: id, storages, mode, verify, next_run_at: next, last_error: error } = policy;
  const kept = [
    [policy.keep, "newest"],
    [policy.keep_daily, "days"],
    [policy.keep_weekly, "weeks"],
    [policy.keep_monthly, "months"],
  ].flatMap(([count, unit]) => (count === undefined ? [] : [`${count} ${unit}`]));
  const rows: [string, string][] = [
    ["App", id],
    ["Set by", policy.from_package ? "the package" : "its people"],
    ["When", whenOf(policy)],
    ["Last", last],
    ["Next", next === undefined ? "never" : next],
    ["Where", storages.length === 0 ? "local" : storages.join(", ")],
    ["Keeps", kept.length === 0 ? "all" : kept.join(", ")],
    ["How", verify ? `${mode}, restored for a trial` : mode],
    ...(error === "" ? [] : [["Error", error] satisfies [string, string]]),
  ];
  return rows.map(([title, text]) => `${`${title}:`.padEnd(8)} ${escapeControls(text)}\n`).join("");
}

function whenOf({ trigger, catch_up: catchUp }: BackupPolicy): string {
  if (trigger === "") return "only on request";
  return catchUp === "latest" ? `${trigger}, and once for what was missed` : trigger;
}
