/** `svc upgrade`: apps go to a newer version; those that run only when that is asked for. */
import type { Command } from "commander";
import { acceptedBy, acceptingLicenses, type AcceptOptions } from "../accept-license.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { forEachName } from "../for-each.ts";
import { AdvisedError, asSvcError, UsageError } from "../failure.ts";
import { followProgress } from "../follow-progress.ts";
import type { RunCommand } from "../run-command.ts";
import { stateText } from "../render/app-table.ts";
import type { App } from "../transport/calls.ts";
import { listAllApps } from "./ls.ts";

interface UpgradeOptions extends AcceptOptions {
  readonly all?: boolean;
  readonly version?: string;
  readonly backup?: boolean;
  readonly restart?: boolean;
}

export function addUpgradeCommand(parent: Command, run: RunCommand): void {
  parent
    .command("upgrade")
    .description("upgrade apps to the newest version")
    .argument("[id...]", "the apps")
    .option("--all", "every app; those that would have to be stopped for it only with --restart")
    .option("--restart", "stop those that run, and start them again, whatever becomes of the upgrade")
    .option("--version <tag>", "go to this tag instead of the newest")
    .option("--accept-license", "accept the licenses that the new version adds")
    .option("--accept-permissions", "give it the permissions on the host that the new version adds")
    .option("--backup", "back them up first, as their policies say (default: as the daemon is configured)")
    .option("--no-backup", "do not")
    .addHelpText(
      "after",
      examples(
        "svc upgrade hello",
        "svc upgrade hello --restart --backup",
        "svc upgrade hello --version 1.0.0 --restart",
        "svc upgrade --all --restart",
      ),
    )
    .action(run((context, ids: string[], options: UpgradeOptions) => upgrade(context, ids, options)));
}

async function upgrade(
  context: CommandContext,
  named: readonly string[],
  options: UpgradeOptions,
): Promise<void> {
  const all = options.all === true;
  if (all === named.length > 0) throw new UsageError("name the apps to upgrade, or pass --all");
  if (all && options.version !== undefined)
    throw new UsageError("--version goes with one app, not with --all");
  const stopApp = options.restart === true;
  const apps = new Map(all ? (await listAllApps(context)).map((app) => [app.id, app]) : []);
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  await forEachName(context, all ? [...apps.keys()] : named, {
    call: (id) => {
      const version = options.version ?? "";
      return acceptingLicenses(context, id, acceptedBy(options), (accepted) => {
        const { backup } = options;
        const request = { id, version, stopApp, ...accepted, ...(backup !== undefined && { backup }) };
        return followProgress(context, `upgrade ${id}`, AppService.method.upgradeAppStream, request);
      }).catch((error: unknown) => {
        const app = apps.get(id);
        if (asSvcError(error)?.reason !== "app_running" || app === undefined) throw withRestart(error, id);
        notePassedOver(context, app);
        return undefined;
      });
    },
    text: ({ id, up_to_date: upToDate, from, to, restarted }) => {
      if (upToDate) return `${id} is up to date at ${to}`;
      // A directory tells its releases by nothing but the version that it says.
      const done =
        from === to ? `Took ${id} ${to} anew from its source` : `Upgraded ${id} from ${from} to ${to}`;
      return `${done}${restarted ? ", and started it again" : ""}`;
    },
  });
}

/** An app that runs can also be stopped by the upgrade itself, which starts it again. */
function withRestart(error: unknown, id: string): unknown {
  const known = asSvcError(error);
  if (known?.reason !== "app_running") return error;
  return new AdvisedError(known, `${known.message}: svc app stop ${id}; or pass --restart`);
}

function notePassedOver(context: CommandContext, app: App): void {
  const reason = app.state_reason === "" ? "" : `: ${app.state_reason}`;
  const state = `${stateText(app, context.host.now())}${reason}`;
  const words = `Passed over ${app.id}, which is ${state}; stop it first: svc app stop ${app.id}, or pass --restart`;
  context.note(words);
}
