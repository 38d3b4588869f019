/** `svc upgrade`: upgrades apps; running apps are stopped and started again. */
import { Option, type Command } from "commander";
import { acceptedBy, acceptingLicenses, type AcceptOptions } from "../input/accept-license.ts";
import type { CommandContext } from "../context.ts";
import { detach, detachOption, type DetachOption } from "../detach.ts";
import { examples } from "../examples.ts";
import { forEachName, oneByOne, requireChoice } from "../for-each.ts";
import { AdvisedError, asSvcError, UsageError } from "../output/failure.ts";
import { followProgress } from "../output/follow-progress.ts";
import type { RunCommand } from "../run-command.ts";
import { isUp, stateText } from "../output/app-table.ts";
import { calls, type App } from "../client/calls.ts";
import { listAllApps } from "../pages.ts";

interface UpgradeOptions extends AcceptOptions, DetachOption {
  readonly all?: boolean;
  readonly version?: string;
  readonly tag?: string;
  readonly backup?: boolean;
  readonly dryRun?: boolean;
  readonly restart?: boolean;
}

const directoryHelp = `
An app from a directory is installed again from that directory, because files may have changed without a new version.
--all skips such apps: svc cannot tell whether they are outdated.
`;

export function addUpgradeCommand(parent: Command, run: RunCommand): void {
  parent
    .command("upgrade")
    .alias("update")
    .description("upgrade apps to the newest version")
    .argument("[id...]", "the apps")
    .option("--all", "upgrade every app that is not from a directory")
    .option("--no-restart", "do not upgrade running apps (default: stop, upgrade and start them)")
    // The default; older scripts pass it.
    .addOption(new Option("--restart").hideHelp())
    .option("--version <tag>", "switch to this version, newer or older: a tag, or the full hash of a commit")
    // Older scripts and users of git pass it.
    .addOption(new Option("--tag <tag>").conflicts("version").hideHelp())
    .option("--dry-run", "show the versions to upgrade to, and change nothing")
    .option("--accept-license", "accept the licenses that the new version adds")
    .option("--accept-permissions", "grant the host permissions that the new version adds")
    .option("--backup", "back up each app first, by its policy (default: as the daemon is configured)")
    .option("--no-backup", "do not back up first")
    .option(...detachOption)
    .addHelpText(
      "after",
      `${directoryHelp}${examples(
        "svc upgrade hello",
        "svc upgrade hello --backup",
        "svc upgrade blog --version v1.0.0",
        "svc upgrade --all --no-restart",
      )}`,
    )
    .action(run((context, ids: string[], options: UpgradeOptions) => upgrade(context, ids, options)));
}

async function upgrade(
  context: CommandContext,
  named: readonly string[],
  options: UpgradeOptions,
): Promise<void> {
  const all = options.all === true;
  const version = options.version ?? options.tag ?? "";
  await requireChoice(context, named, options);
  if (all && version !== "") throw new UsageError("--version goes with one app, not with --all");
  const [first = "", ...others] = named;
  const versionTyped = others.find((word) => /^v?\d+(?:\.\d+)*$/.test(word));
  if (versionTyped !== undefined)
    throw new UsageError(`for a version: svc upgrade ${first} --version ${versionTyped}`);
  if (others.includes("latest"))
    throw new UsageError(`for the newest version, name only the app: svc upgrade ${first}`);
  const apps = new Map(all ? (await appsToUpgrade(context)).map((app) => [app.id, app]) : []);
  const ids = all ? [...apps.keys()] : named;
  if (options.dryRun === true) return showPlan(context, ids, version, options);
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  const stopApp = options.restart !== false;
  const { backup } = options;
  const shared = { version, stopApp, ...(backup !== undefined && { backup }) };
  if (options.detach === true) {
    return oneByOne(context, ids, (id) => {
      const request = { ...shared, ...acceptedBy(options), id };
      return detach(context, `upgrade ${id}`, AppService.method.upgradeApp, request);
    });
  }
  await forEachName(context, ids, {
    call: (id) => {
      return acceptingLicenses(context, id, acceptedBy(options), (accepted) => {
        const request = { ...shared, ...accepted, id };
        return followProgress(context, `upgrade ${id}`, AppService.method.upgradeAppStream, request);
      }).catch((error: unknown) => {
        if (stopApp || asSvcError(error)?.reason !== "app_running") throw error;
        const app = apps.get(id);
        if (app === undefined) throw withoutNoRestart(error, id);
        noteSkipped(context, app);
        return undefined;
      });
    },
    text: async ({ id, up_to_date: upToDate, from, to, restarted }) => {
      if (upToDate) return `${id} is up to date at ${to}`;
      if (version !== "" && isOlder(to, from) && !context.json) {
        context.note(
          `The data of ${id} did not change. To return to earlier data: svc backup ls ${id}, then svc restore ${id} ARCHIVE --stop`,
        );
        context.note(`The next svc upgrade ${id} or svc upgrade --all installs the newest version again.`);
      }
      const verb = version === "" ? "Upgraded" : "Switched";
      const done =
        from === to
          ? `Installed ${id} ${to} again${fromText(await context.call(calls.getApp, { id }))}`
          : `${verb} ${id} from ${from} to ${to}`;
      return `${done}${restarted ? ", and started it again" : ""}`;
    },
  });
}

/** Every app except those from directories: svc does not check these for updates, and prints a note for each. */
async function appsToUpgrade(context: CommandContext): Promise<readonly App[]> {
  const apps = await listAllApps(context);
  if (apps.length === 0 && !context.json) context.note("No apps are installed.");
  for (const { id, origin } of apps.filter(isFromDirectory))
    context.note(`${id}: from ${origin?.url ?? ""}, not checked; to install it again: svc upgrade ${id}`);
  return apps.filter((app) => !isFromDirectory(app));
}

/** A package of a source has a version for each change, also if the source is a directory. */
function isFromDirectory({ origin }: App): boolean {
  return origin?.kind === "directory" && origin.source === "";
}

function isOlder(one: string, other: string): boolean {
  return one.localeCompare(other, "en", { numeric: true }) < 0;
}

function fromText({ origin }: App): string {
  return origin === undefined ? "" : ` from ${origin.url}`;
}

/** @param version empty for the newest */
async function showPlan(
  context: CommandContext,
  ids: readonly string[],
  version: string,
  { restart }: UpgradeOptions,
): Promise<void> {
  const { updates } = await context.call(calls.listUpdates, {});
  await forEachName(context, ids, {
    call: async (id) => {
      const app = await context.call(calls.getApp, { id });
      const update = updates.find((each) => each.id === app.id);
      const to = version === "" ? (update?.available_version ?? app.version) : version;
      // Files of a directory may change without a new version, so an upgrade installs it again.
      const again = to === app.version && isFromDirectory(app) ? app.origin?.url : undefined;
      const restarted = isUp(app) && restart !== false;
      const upToDate = to === app.version && again === undefined;
      return {
        ...{ id: app.id, from: app.version, to, up_to_date: upToDate },
        ...{ again_from: again, restarted: restarted && !upToDate, problem: update?.problem },
        ...(isUp(app) && !restarted && !upToDate && { skipped: app.state }),
      };
    },
    text: ({ id, from, to, up_to_date: upToDate, again_from: again, restarted, skipped, problem }) => {
      if (problem !== undefined && version === "") return `Cannot check ${id}: ${problem}`;
      if (upToDate) return `${id} is up to date at ${to}`;
      if (skipped !== undefined)
        return `Would skip ${id}, which is ${skipped}: omit --no-restart to upgrade it`;
      const plan =
        again === undefined
          ? `Would upgrade ${id} from ${from} to ${to}`
          : `Would install ${id} ${to} again from ${again}`;
      return `${plan}${restarted ? ", and restart it" : ""}`;
    },
  });
}

function withoutNoRestart(error: unknown, id: string): unknown {
  const known = asSvcError(error);
  return known && new AdvisedError(known, `${known.message}: svc stop ${id}; or omit --no-restart`);
}

function noteSkipped(context: CommandContext, app: App): void {
  const reason = app.state_reason === "" ? "" : `: ${app.state_reason}`;
  const state = `${stateText(app, context.host.now())}${reason}`;
  context.note(`Skipped ${app.id}, which is ${state}: omit --no-restart to upgrade it`);
}
