/** `svc docker events`: live events of the engine. */
import { Option, type Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { collect } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { escapeCell } from "../../output/escape.ts";
import { inLocalTime } from "../../output/instant.ts";
import type { DockerEvent } from "../../client/calls.ts";

export function addEventsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("events")
    .description("print events of the engine, until Ctrl-C")
    .addOption(
      new Option(
        "--type <type>",
        "only events of this object type, such as container or image; repeat for more",
      )
        .argParser(collect)
        .default([], "all"),
    )
    .action(run((context, { type }: { type: readonly string[] }) => follow(context, type)));
}

async function follow(context: CommandContext, types: readonly string[]): Promise<void> {
  const { DockerEventSchema, DockerService } = await import("../../../../gen/svc/v1/docker_pb.ts");
  const { messageToRest } = await import("../../client/rest-json.ts");
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
