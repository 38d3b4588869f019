/** `svc app image|repull`: the container image that an app runs. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { detach, detachOption, type DetachOption } from "../detach.ts";
import { forEachName, oneByOne } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import type { Color } from "../output/color.ts";
import type { AppImage } from "../../../gen/svc/v1/app_pb.ts";
import type { Column } from "../output/table.ts";
import type { RestShape } from "../client/rest-shape.ts";

export function addImageCommands(parent: Command, run: RunCommand): void {
  parent
    .command("image")
    .description("show the container image of an app")
    .argument("<id>", "the app")
    .option("--check", "check the registry for a newer image")
    .action(run((context, id: string, { check }: { check?: boolean }) => show(context, id, check ?? false)));
  parent
    .command("repull")
    .description("pull the images of apps again; running apps are restarted with a new image")
    .argument("<id...>", "the apps")
    .option(...detachOption)
    .action(run((context, ids: string[], options: DetachOption) => repull(context, ids, options)));
}

const freshnessColors: Readonly<Record<string, Color>> = { current: "green", outdated: "yellow" };

async function show(context: CommandContext, id: string, checkRemote: boolean): Promise<void> {
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  // Only compose apps have the list.
  const image: Partial<Image> = await context.invokeOnce(AppService.method.getAppImage, [
    { id, checkRemote },
  ]);
  if (context.json) return context.printJson(image);
  if (image.services !== undefined) return printServices(context, image.services);
  if (image.reference === undefined) {
    context.note(`${id} runs as a process and has no image.`);
    return;
  }
  return context.printFields([
    ["Image", image.reference],
    ["Version", image.version],
    ["Local digest", image.local_digest],
    ["Remote digest", image.remote_digest],
    ["Freshness", freshnessText(image), freshnessColors[image.freshness ?? ""]],
  ]);
}

type Image = RestShape<AppImage>;
type ServiceImages = Image["services"];

function freshnessText({ freshness = "", freshness_reason: reason = "" }: Partial<Image>): string {
  return reason === "" ? freshness : `${freshness}: ${reason}`;
}

function printServices(context: CommandContext, services: ServiceImages): Promise<void> {
  const freshness: Column<ServiceImages[number]> = {
    title: "FRESHNESS",
    value: ({ image = {} }) => freshnessText(image),
    color: ({ image }) => freshnessColors[image?.freshness ?? ""],
    isHidden: services.every(({ image = {} }) => freshnessText(image) === ""),
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

async function repull(
  context: CommandContext,
  ids: readonly string[],
  { detach: isDetached = false }: DetachOption,
): Promise<void> {
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  if (isDetached)
    return oneByOne(context, ids, (id) =>
      detach(context, `repull ${id}`, AppService.method.repullApp, { id }),
    );
  await forEachName(context, ids, {
    call: (id) => context.invokeOnce(AppService.method.repullApp, [{ id }]),
    text: ({ id, changed, restarted, services }) => {
      for (const { service, reference, reason } of services) {
        if (reason !== "") context.note(`${id}: ${service} stays at ${reference}: ${reason}.`);
      }
      const which = services.flatMap(({ service, changed: isNew }) => (isNew ? [service] : []));
      const what = which.length === 0 ? "a new image" : `a new image of ${which.join(", ")}`;
      return changed
        ? `${id} has ${what}${restarted ? " and was restarted with it" : ""}`
        : `${id} already has the newest image`;
    },
  });
}
