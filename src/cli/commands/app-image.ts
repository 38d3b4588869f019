/** `svc app image|repull`: the container image that an app runs. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../program.ts";
import type { Color } from "../render/color.ts";
import { renderFields } from "../render/table.ts";

export function addImageCommands(parent: Command, run: RunCommand): void {
  parent
    .command("image")
    .description("show the image that an app runs; nothing for one that runs as a process")
    .argument("<id>", "the app")
    .option("--check", "ask the registry whether there is a newer one")
    .action(run((context, id: string, { check }: { check?: boolean }) => show(context, id, check ?? false)));
  parent
    .command("repull")
    .description("pull the images of apps afresh; a running app goes on with a new one")
    .argument("<id...>", "the apps")
    .action(run((context, ids: string[]) => repull(context, ids)));
}

const freshnessColors: Readonly<Record<string, Color>> = { current: "green", outdated: "yellow" };

async function show(context: CommandContext, id: string, checkRemote: boolean): Promise<void> {
  const { AppImageSchema, AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  const { messageToRest } = await import("../transport/rest-json.ts");
  const answers = context.invoke(AppService.method.getAppImage, [{ id, checkRemote }]);
  for await (const answer of answers) {
    const image = messageToRest(AppImageSchema, answer);
    if (context.json) return context.printJson(image);
    if (image.reference === undefined) {
      context.note(`${id} runs as a process: it has no image.`);
      return;
    }
    const { freshness = "", freshness_reason: reason = "" } = image;
    return context.print(
      renderFields(
        [
          ["Image", image.reference],
          ["Version", image.version],
          ["Local digest", image.local_digest],
          ["Remote digest", image.remote_digest],
          ["Freshness", reason === "" ? freshness : `${freshness}: ${reason}`, freshnessColors[freshness]],
        ],
        context.paint,
      ),
    );
  }
}

async function repull(context: CommandContext, ids: readonly string[]): Promise<void> {
  const { AppService, RepullAppResponseSchema } = await import("../../../gen/svc/v1/app_pb.ts");
  const { messageToRest } = await import("../transport/rest-json.ts");
  await forEachName(context, ids, {
    call: async (id) => {
      for await (const answer of context.invoke(AppService.method.repullApp, [{ id }])) {
        return messageToRest(RepullAppResponseSchema, answer);
      }
      throw new Error(`RepullApp of ${id} gave no answer`);
    },
    text: ({ id, changed, restarted }) =>
      changed
        ? `${id} has a new image${restarted ? " and was restarted on it" : ""}`
        : `${id} has the newest image already`,
  });
}
