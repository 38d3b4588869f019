/** `svc ports`: the ports that apps publish. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../program.ts";
import { calls } from "../transport/calls.ts";

export function addPortsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ports")
    .description("show the ports that apps publish")
    .argument("[id]", "only this app")
    .action(run((context, id?: string) => showPorts(context, id)));
}

async function showPorts(context: CommandContext, id: string | undefined): Promise<void> {
  if (id !== undefined) {
    const answer = await context.call(calls.listAppPorts, { id });
    if (context.json) return context.printJson(answer);
    return printPorts(
      context,
      answer.ports.map((port) => ({ ...port, app: id })),
    );
  }
  const report = await context.call(calls.getPortReport, {});
  if (context.json) return context.printJson(report);
  return printPorts(
    context,
    report.apps.flatMap((app) => app.ports.map((port) => ({ ...port, app: app.id }))),
  );
}

interface PortRow {
  readonly app: string;
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
}

function printPorts(context: CommandContext, rows: readonly PortRow[]): Promise<void> {
  return context.printTable(
    [
      { title: "PORT", value: (row) => String(row.port), align: "right" },
      { title: "PROTOCOL", value: (row) => row.protocol },
      { title: "APP", value: (row) => row.app, shrinkTo: 12 },
      { title: "NAME", value: (row) => row.name, shrinkTo: 8 },
    ],
    rows,
  );
}
