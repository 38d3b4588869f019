/** `svc info`: everything about one app. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { oneByOne } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import {
  adoptedText,
  ownerText,
  stateColor,
  stateText,
  statusOf,
  lastBackupText,
  placementText,
  tasksText,
} from "../output/app-table.ts";
import { failedJobs, lastOutputCommand } from "../output/schedule-table.ts";
import type { Field } from "../output/table.ts";
import { escapeControls } from "../output/escape.ts";
import { networkUrls, urlOf } from "../app-url.ts";
import { relativeTo } from "../output/instant.ts";
import { formatAge, formatBytes, formatPercent } from "../output/units.ts";
import { calls, type App, type Schedule, type UnaryCall } from "../client/calls.ts";

export function addInfoCommand(parent: Command, run: RunCommand): void {
  parent
    .command("info")
    .aliases(["inspect", ...(parent.name() === "app" ? ["status"] : [])])
    .description("show an app: state, address, resource usage, version, backups and the next job")
    .argument("<id...>", "the apps")
    .action(
      run((context, ids: string[]) =>
        oneByOne(context, ids, async (id) => {
          if (!context.json && id !== ids[0]) await context.print("\n");
          await showInfo(context, id);
        }),
      ),
    );
}

export async function showInfo(context: CommandContext, id: string): Promise<void> {
  const app = await context.call(calls.getApp, { id });
  if (context.json) return context.printJson(app);
  const now = context.host.now();
  const { url, stats, disk, jobs, ports, lastLines } = await measured(context, app);
  const networkAddresses = await networkUrls(context, app, ports);
  await context.printFields([
    ["ID", app.id],
    ["Name", app.name],
    ["Summary", app.summary],
    ["State", stateText(app, now), stateColor(statusOf(app))],
    ["Reason", app.state_reason],
    ["Health", healthText(app)],
    ["Address", url],
    ["Also at", networkAddresses.join(", ")],
    ["Doing", operationText(app, now)],
    ["Version", versionText(app)],
    ["Package", app.package_id],
    ["Runtime", app.runtime],
    ["Placement", placementText(app)],
    ["Tasks", tasksText(app)],
    ["Origin", originText(app)],
    ["Home page", app.homepage],
    ["Owner", ownerText(app)],
    ["Ports", ports.map((port) => `${port.name} ${port.port}/${port.protocol}`).join(", ")],
    ["Limits", app.limits.map(limitText).join(", ")],
    ["CPU", stats?.cpu_percent === undefined ? undefined : formatPercent(stats.cpu_percent)],
    ["Memory", stats?.memory_bytes === undefined ? undefined : formatBytes(stats.memory_bytes)],
    ["Disk", disk === undefined || disk.unknown !== undefined ? undefined : formatBytes(disk.total_bytes)],
    ["Next job", nextJobText(jobs, app.id, now)],
    ...failedJobs(jobsOf(jobs, app.id)).map((job): Field => [
      "Failed job",
      `${job.id} (${job.action?.type ?? ""}); see its output with: ${lastOutputCommand(job, context.host.uid)}`,
      "red",
    ]),
    ["Backed up", lastBackupText(app, now), app.backups?.overdue === true ? "red" : undefined],
    ["Installed", formatAge(app.created_at, now)],
    ["Started", formatAge(app.started_at, now)],
    ["Restarts", app.restarts === 0 ? "" : String(app.restarts)],
    ["Last exit", exitText(app)],
    ["At boot", app.enabled ? "starts again" : "stays stopped"],
    ["Directory", app.directory],
    ["Adopted data", adoptedText(app.adopted)],
  ]);
  if (lastLines.length > 0) {
    await context.print(`${context.paint("bold", "Last lines:")}\n`);
    await context.print(lastLines.map((line) => `  ${escapeControls(line)}\n`).join(""));
  }
  if (app.restart_required) {
    context.note(`Settings have changed since the start. Apply them: svc restart ${app.id}`);
  }
}

/** How long a value that is not essential may take, in milliseconds. */
const measureLimitMs = 3_000;
/** Lines of the log of an unhealthy app. */
const lastLineCount = 5;

/** Values of other calls; each is undefined if its call fails or takes too long. */
async function measured(context: CommandContext, app: App) {
  const client = await context.client();
  const signal = AbortSignal.any([context.host.interrupted, AbortSignal.timeout(measureLimitMs)]);
  const ask = <Request, Response>(call: UnaryCall<Request, Response>, request: Request) =>
    client.call(call, request, { signal }).catch(() => undefined);
  const isRunning = app.state === "RUNNING";
  const needsLog = statusOf(app) === "UNHEALTHY" && app.last_lines.length === 0;
  const [url, stats, disk, jobs, ports, log] = await Promise.all([
    urlOf(context, app).catch(() => undefined),
    isRunning ? ask(calls.getAppStats, { ids: [app.id] }) : undefined,
    ask(calls.getAppDisk, { id: app.id }),
    ask(calls.listSchedules, { app: app.id }),
    ask(calls.listAppPorts, { id: app.id }),
    needsLog ? ask(calls.getAppLogs, { id: app.id, tail: lastLineCount }) : undefined,
  ]);
  const lastLines = log?.lines.map(({ text }) => text) ?? app.last_lines;
  return {
    ...{ url, stats: stats?.stats[0], disk, jobs: jobs?.schedules ?? [], lastLines },
    // Includes ports that only running containers publish.
    ports: ports?.ports ?? app.ports,
  };
}

function versionText({ version, available_version: available }: App): string {
  return available === undefined ? version : `${version} (available: ${available})`;
}

/** The jobs of the app: an older daemon returns those of all apps. */
function jobsOf(jobs: readonly Schedule[], appId: string): readonly Schedule[] {
  return jobs.filter(({ action }) => action?.app === appId);
}

/** `nightly (backup) in 3h` for the job of the app that runs next. */
function nextJobText(jobs: readonly Schedule[], appId: string, nowMs: number): string | undefined {
  const [next] = jobsOf(jobs, appId)
    .flatMap(({ id, action, next_run_unix: atUnix }) =>
      atUnix === undefined ? [] : [{ id, type: action?.type ?? "", atUnix }],
    )
    .toSorted((one, other) => one.atUnix - other.atUnix);
  return next === undefined
    ? undefined
    : `${next.id} (${next.type}) ${relativeTo(nowMs)(next.atUnix * 1000)}`;
}

/** The health with the message of the last check, if there is one. */
function healthText({ health, health_reason: reason }: App): string | undefined {
  return reason === undefined ? undefined : `${health}: ${reason}`;
}

function operationText({ operation }: App, nowMs: number): string | undefined {
  if (operation === undefined) return undefined;
  const { kind, phase, started_at: startedAt } = operation;
  return `${phase === "" ? kind : `${kind}: ${phase}`}, since ${formatAge(startedAt, nowMs)}`;
}

function originText({ origin }: App): string | undefined {
  if (origin === undefined) return undefined;
  const at = origin.tag || origin.branch || origin.commit;
  const commit = origin.commit === "" ? "" : ` (${origin.commit.slice(0, 12)})`;
  const url = origin.directory === "" ? origin.url : `${origin.directory} of ${origin.url}`;
  return `${url}${at === "" ? "" : ` at ${at}`}${commit}`;
}

function limitText({ name, value, enforced }: App["limits"][number]): string {
  const amount = name === "memory" ? formatBytes(value) : String(value);
  return `${name} ${amount}${enforced ? "" : " (not enforced here)"}`;
}

function exitText(app: App): string | undefined {
  if (app.exit_signal !== undefined) return app.exit_signal;
  return app.exit_code === undefined ? undefined : `code ${app.exit_code}`;
}
