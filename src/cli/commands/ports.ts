/** `svc ports`: the ports that apps publish. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import type { Column } from "../output/table.ts";
import { calls } from "../client/calls.ts";
import { watchable, watchOption } from "../output/watched.ts";

export function addPortsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ports")
    .description("show the ports that apps publish")
    .argument("[id]", "only this app")
    .option(...watchOption)
    .action(run(watchable((context, id?: string) => showPorts(context, id))));
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
  readonly addresses: readonly string[];
  readonly taken_by?: string | undefined;
}

/** Other users of a row's port, now or after the app's next start. */
function conflictText(row: PortRow, rows: readonly PortRow[]): string {
  if (row.taken_by !== undefined) return `in use by ${row.taken_by}`;
  const others = rows.filter(
    ({ app, port, protocol }) => app !== row.app && port === row.port && protocol === row.protocol,
  );
  return others.length === 0 ? "" : `also used by ${others.map(({ app }) => app).join(", ")}`;
}

function printPorts(context: CommandContext, rows: readonly PortRow[]): Promise<void> {
  const columns: readonly Column<PortRow>[] = [
    { title: "PORT", value: (row) => String(row.port), align: "right" },
    { title: "PROTOCOL", value: (row) => row.protocol, dispensable: 2 },
    {
      title: "ADDRESS",
      dispensable: 1,
      value: (row) => row.addresses.join(", "),
      isHidden: rows.every(({ addresses }) => addresses.length === 0),
    },
    { title: "APP", value: (row) => row.app, shrinkTo: 12 },
    { title: "NAME", value: (row) => row.name, shrinkTo: 8, dispensable: 3 },
    {
      title: "CONFLICT",
      value: (row) => conflictText(row, rows),
      color: () => "red",
      isHidden: rows.every((row) => conflictText(row, rows) === ""),
    },
  ];
  return context.printTable(columns, rows, "No app has a port.");
}
