/** `svc app info`: everything about one app. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import {
  ownerText,
  stateColor,
  stateText,
  statusOf,
  lastBackupText,
  placementText,
  tasksText,
} from "../output/app-table.ts";
import { escapeControls } from "../output/escape.ts";
import { formatAge, formatBytes } from "../output/units.ts";
import { calls, type App } from "../client/calls.ts";

export function addInfoCommand(parent: Command, run: RunCommand): void {
  parent
    .command("info")
    .aliases(["inspect", ...(parent.name() === "app" ? ["status"] : [])])
    .description("show everything about an app")
    .argument("<id>", "the app")
    .action(run((context, id: string) => showInfo(context, id)));
}

export async function showInfo(context: CommandContext, id: string): Promise<void> {
  const app = await context.call(calls.getApp, { id });
  if (context.json) return context.printJson(app);
  const now = context.host.now();
  await context.printFields([
    ["Id", app.id],
    ["Name", app.name],
    ["Summary", app.summary],
    ["State", stateText(app, now), stateColor(statusOf(app))],
    ["Reason", app.state_reason],
    ["Health", healthText(app)],
    ["Doing", operationText(app, now)],
    ["Version", app.version],
    ["Package", app.package_id],
    ["Runtime", app.runtime],
    ["Placement", placementText(app)],
    ["Tasks", tasksText(app)],
    ["Origin", originText(app)],
    ["Home page", app.homepage],
    ["Owner", ownerText(app)],
    ["Ports", app.ports.map((port) => `${port.name} ${port.port}/${port.protocol}`).join(", ")],
    ["Limits", app.limits.map(limitText).join(", ")],
    ["Backed up", lastBackupText(app, now), app.backups?.overdue === true ? "red" : undefined],
    ["Installed", formatAge(app.created_at, now)],
    ["Started", formatAge(app.started_at, now)],
    ["Restarts", app.restarts === 0 ? "" : String(app.restarts)],
    ["Last exit", exitText(app)],
    ["At boot", app.enabled ? "starts again" : "stays stopped"],
    ["Directory", app.directory],
  ]);
  if (app.last_lines.length > 0) {
    await context.print(`${context.paint("bold", "Last lines:")}\n`);
    await context.print(app.last_lines.map((line) => `  ${escapeControls(line)}\n`).join(""));
  }
  if (app.restart_required) {
    context.note(`Settings have changed since the start. Apply them: svc app restart ${app.id}`);
  }
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
  const at = origin.tag === "" ? origin.branch : origin.tag;
  const commit = origin.commit === "" ? "" : ` (${origin.commit.slice(0, 12)})`;
  return `${origin.url}${at === "" ? "" : ` at ${at}`}${commit}`;
}

function limitText({ name, value, enforced }: App["limits"][number]): string {
  const amount = name === "memory" ? formatBytes(value) : String(value);
  return `${name} ${amount}${enforced ? "" : " (not enforced here)"}`;
}

function exitText(app: App): string | undefined {
  if (app.exit_signal !== undefined) return app.exit_signal;
  return app.exit_code === undefined ? undefined : `code ${app.exit_code}`;
}
