/** `svc listening`: the processes that listen on the host's ports. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { parseCount } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { calls } from "../client/calls.ts";
import { watchable, watchOption } from "../output/watched.ts";

export function addListeningCommand(parent: Command, run: RunCommand): void {
  parent
    .command("listening")
    .description("show which processes and apps listen on the ports of this machine")
    .argument("[port]", "only this port", parseCount(1, 65_535))
    .option(...watchOption)
    .action(run(watchable((context, port?: number) => showListening(context, port))));
}

async function showListening(context: CommandContext, port: number | undefined): Promise<void> {
  const answer = await context.call(calls.listListeningPorts, {});
  const ports = answer.ports.filter((each) => port === undefined || each.port === port);
  if (context.json) return context.printJson({ ...answer, ports });
  return context.printTable(
    [
      { title: "PORT", value: (row) => String(row.port), align: "right" },
      { title: "PROTOCOL", value: (row) => row.protocol, dispensable: 3 },
      { title: "ADDRESS", value: (row) => row.address, shrinkTo: 9 },
      { title: "APP", value: (row) => row.appId ?? "", shrinkTo: 8 },
      { title: "CONTAINER", value: (row) => row.container ?? "", shrinkTo: 12 },
      { title: "PROCESS", value: (row) => row.process ?? "", shrinkTo: 8 },
      { title: "PID", value: (row) => String(row.pid ?? ""), align: "right", dispensable: 2 },
      { title: "USER", value: (row) => row.user, shrinkTo: 8, dispensable: 1 },
    ],
    ports,
    port === undefined ? "Nothing listens." : `Nothing listens on port ${port}.`,
  );
}
