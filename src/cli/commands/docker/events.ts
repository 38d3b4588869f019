/** `svc docker events`: what happens on the engine, as it happens. */
import { Option, type Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { collect } from "../../option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { escapeCell } from "../../render/escape.ts";
import { inLocalTime } from "../../render/instant.ts";
import type { DockerEvent } from "../../transport/calls.ts";

export function addEventsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("events")
    .description("print what happens on the engine, until Ctrl-C")
    .addOption(
      new Option("--type <type>", "only of these objects, such as container or image; repeat for more")
        .argParser(collect)
        .default([], "all"),
    )
    .action(run((context, { type }: { type: readonly string[] }) => follow(context, type)));
}

async function follow(context: CommandContext, types: readonly string[]): Promise<void> {
  const { DockerEventSchema, DockerService } = await import("../../../../gen/svc/v1/docker_pb.ts");
  const { messageToRest } = await import("../../transport/rest-json.ts");
  const method = DockerService.method.streamDockerEvents;
  for await (const message of context.follow(method, () => ({ types: [...types] }))) {
    const event = messageToRest<typeof DockerEventSchema, "camel">(DockerEventSchema, message);
    await (context.json ? context.printJsonLine(event) : context.print(eventLine(context, event)));
  }
}

/** `2026-03-29 03:00:00 +02:00  container start  web (app hello)` */
function eventLine({ paint }: CommandContext, { time, type, action, id, name, appId }: DockerEvent): string {
  const at = time === undefined ? "" : inLocalTime(Date.parse(time));
  const owner = appId === undefined ? "" : ` (app ${appId})`;
  const what = escapeCell(`${type} ${action}`);
  return `${paint("dim", at)}  ${what}  ${escapeCell(`${name === "" ? id : name}${owner}`)}\n`;
}
