/** `svc app start|stop|restart`. */
import type { Command } from "commander";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../program.ts";
import { portsText, stateText } from "../render/app-table.ts";
import { calls } from "../transport/calls.ts";
import type { App } from "../transport/calls.ts";

const verbs = [
  { name: "start", call: calls.startApp, description: "start apps; a running one stays as it is" },
  { name: "stop", call: calls.stopApp, description: "stop every process of apps" },
  { name: "restart", call: calls.restartApp, description: "stop apps, where they run, and start them" },
] as const;

export function addLifecycleCommands(parent: Command, run: RunCommand): void {
  for (const { name, call, description } of verbs) {
    parent
      .command(name)
      .description(description)
      .argument("<id...>", "the apps")
      .action(
        run((context, ids: string[]) =>
          forEachName(context, ids, { call: (id) => context.call(call, { id }), text: outcome }),
        ),
      );
  }
}

function outcome(app: App): string {
  const ports = app.state === "RUNNING" && app.ports.length > 0 ? ` on port ${portsText(app.ports)}` : "";
  return `${app.id} is ${stateText(app)}${ports}`;
}
