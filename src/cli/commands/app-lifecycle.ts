/** `svc start|stop|restart|cancel`. */
import type { Command } from "commander";
import { startAndWait, stopAndWait, noWaitOption, waitOption, type WaitOptions } from "../wait-until-up.ts";
import { chosenIds, type AllOption, forEachName } from "../for-each.ts";
import { namedService } from "../named-service.ts";
import { UsageError } from "../output/failure.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import { whereText } from "../app-url.ts";
import { stateText } from "../output/app-table.ts";
import { calls, type App } from "../client/calls.ts";

const starts = [
  {
    name: "start",
    call: calls.startApp,
    description: "start apps; running ones are left as they are",
    all: "start every app",
  },
  {
    name: "restart",
    call: calls.restartApp,
    description: "restart apps; stopped ones are started",
    all: "restart every app that is not stopped",
  },
] as const;

const filesHelp = `
An app runs a copy of its package. After changes to the package's files, such as a compose file or .env: svc upgrade ID
`;

export function addLifecycleCommands(parent: Command, run: RunCommand): void {
  for (const { name, call, description, all } of starts) {
    parent
      .command(name)
      .description(description)
      .argument("[id...]", "the apps")
      .option("--all", all)
      .option(...waitOption)
      .option(...noWaitOption)
      .addHelpText("after", filesHelp)
      .action(
        run(async (context, ids: string[], options: WaitOptions & AllOption) =>
          startApps(context, await wholeApps(context, name, ids, options), call, options),
        ),
      );
  }
  parent
    .command("stop")
    .description("stop apps with all their processes")
    .argument("[id...]", "the apps")
    .option("--all", "stop every app")
    .action(
      run(async (context, ids: string[], options: AllOption) =>
        stopApps(context, await wholeApps(context, "stop", ids, options)),
      ),
    );
}

export function addCancelCommand(parent: Command, run: RunCommand): void {
  parent
    .command("cancel")
    .description(
      "cancel and undo the current operation of apps (install, upgrade, clone, backup, restore or pull)",
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

/** @throws UsageError if the line names a service of a compose project */
async function wholeApps(
  context: CommandContext,
  command: string,
  named: readonly string[],
  options: AllOption,
): Promise<readonly string[]> {
  const ids = await chosenIds(context, named, options, ({ enabled }) => enabled || command !== "restart");
  const part = options.all === true ? undefined : await namedService(context, named);
  if (part === undefined) return ids;
  throw new UsageError(
    `"${part.service}" is a service of ${part.app}; services of an app ${command} together: svc ${command} ${part.app}`,
  );
}

/** @param call starts one app */
function startApps(
  context: CommandContext,
  ids: readonly string[],
  call: (typeof starts)[number]["call"],
  options: WaitOptions,
): Promise<void> {
  return forEach(context, ids, (id) => startAndWait(context, id, call, options));
}

function stopApps(context: CommandContext, ids: readonly string[]): Promise<void> {
  return forEach(context, ids, (id) => stopAndWait(context, id));
}

function forEach(
  context: CommandContext,
  ids: readonly string[],
  call: (id: string) => Promise<App>,
): Promise<void> {
  return forEachName(context, ids, { call, text: (app) => outcome(context, app) });
}

async function outcome(context: CommandContext, app: App): Promise<string> {
  return `${app.id} is ${stateText(app, context.host.now())}${await whereText(context, app)}`;
}
