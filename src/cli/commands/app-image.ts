/** `svc app image|repull`: the container image that an app runs. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import type { Color } from "../render/color.ts";
import type { AppImage } from "../../../gen/svc/v1/app_pb.ts";
import type { Column } from "../render/table.ts";
import type { RestShape } from "../transport/rest-shape.ts";

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
    if (image.services.length > 0) return printServices(context, image.services);
    if (image.reference === undefined) {
      context.note(`${id} runs as a process: it has no image.`);
      return;
    }
    const { freshness = "", freshness_reason: reason = "" } = image;
    return context.printFields([
      ["Image", image.reference],
      ["Version", image.version],
      ["Local digest", image.local_digest],
      ["Remote digest", image.remote_digest],
      ["Freshness", reason === "" ? freshness : `${freshness}: ${reason}`, freshnessColors[freshness]],
    ]);
  }
}

type ServiceImages = RestShape<AppImage>["services"];

function printServices(context: CommandContext, services: ServiceImages): Promise<void> {
  const freshnessOf = ({ image }: ServiceImages[number]): string => {
    const { freshness = "", freshness_reason: reason = "" } = image ?? {};
    return reason === "" ? freshness : `${freshness}: ${reason}`;
  };
  const freshness: Column<ServiceImages[number]> = {
    title: "FRESHNESS",
    value: freshnessOf,
    color: ({ image }) => freshnessColors[image?.freshness ?? ""],
    isHidden: services.every((row) => freshnessOf(row) === ""),
  };
  return context.printTable(
    [
      { title: "SERVICE", value: ({ service }) => service, shrinkTo: 8 },
      { title: "IMAGE", value: ({ image }) => image?.reference ?? "", shrinkTo: 12 },
      { title: "VERSION", value: ({ image }) => image?.version ?? "", shrinkTo: 7 },
      freshness,
    ],
    services,
  );
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
    text: ({ id, changed, restarted, services }) => {
      for (const { service, reference, reason } of services) {
        if (reason !== "") context.note(`${id}: ${service} stays at ${reference}: ${reason}.`);
      }
      const which = services.flatMap(({ service, changed: isNew }) => (isNew ? [service] : []));
      const what = which.length === 0 ? "a new image" : `a new image of ${which.join(", ")}`;
      return changed
        ? `${id} has ${what}${restarted ? " and was restarted on it" : ""}`
        : `${id} has the newest image already`;
    },
  });
}
