/** `svc app start|stop|restart|cancel`. */
import type { Command, CommandOptions } from "commander";
import { comeUp, noWaitOption, waitOption, type ComeUpOptions } from "../come-up.ts";
import type { CommandContext } from "../context.ts";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import { portsText, stateText } from "../render/app-table.ts";
import { calls, type App } from "../transport/calls.ts";

const starts = [
  { name: "start", call: calls.startApp, description: "start apps; a running one stays as it is" },
  { name: "restart", call: calls.restartApp, description: "stop apps, where they run, and start them" },
] as const;

/** @param options `hidden` for those that no list shows */
export function addLifecycleCommands(parent: Command, run: RunCommand, options: CommandOptions = {}): void {
  for (const { name, call, description } of starts) {
    parent
      .command(name, options)
      .description(description)
      .argument("<id...>", "the apps")
      .option(...waitOption)
      .option(...noWaitOption)
      .action(
        run((context, ids: string[], comeUpOptions: ComeUpOptions) =>
          startApps(context, ids, call, comeUpOptions),
        ),
      );
  }
  parent
    .command("stop", options)
    .description("stop every process of apps")
    .argument("<id...>", "the apps")
    .action(run((context, ids: string[]) => stopApps(context, ids)));
}

export function addCancelCommand(parent: Command, run: RunCommand): void {
  parent
    .command("cancel")
    .description(
      "end what is under way with apps (an install, upgrade, clone, backup, restore or pull), and undo it",
    )
    .argument("<id...>", "the apps")
    .action(
      run((context, ids: string[]) =>
        forEachName(context, ids, {
          call: (id) => context.call(calls.cancelAppOperation, { id }),
          text: ({ id, operation }) => `${id}: the ${operation?.kind ?? "operation"} is canceled, and undone`,
        }),
      ),
    );
}

/** @param call starts one of them */
export function startApps(
  context: CommandContext,
  ids: readonly string[],
  call: (typeof starts)[number]["call"],
  options: ComeUpOptions,
): Promise<void> {
  return forEach(context, ids, async (id) => comeUp(context, await context.call(call, { id }), options));
}

export function stopApps(context: CommandContext, ids: readonly string[]): Promise<void> {
  return forEach(context, ids, (id) => context.call(calls.stopApp, { id }));
}

function forEach(
  context: CommandContext,
  ids: readonly string[],
  call: (id: string) => Promise<App>,
): Promise<void> {
  return forEachName(context, ids, { call, text: (app) => outcome(app, context.host.now()) });
}

function outcome(app: App, nowMs: number): string {
  const ports = app.state === "RUNNING" && app.ports.length > 0 ? ` on port ${portsText(app.ports)}` : "";
  return `${app.id} is ${stateText(app, nowMs)}${ports}`;
}
