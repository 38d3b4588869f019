/** `svc app place` and `svc app scale`: the engine that runs an app, and the number of tasks. */
import { Option, type Command } from "commander";
import { AppPlacementOns, AppPlacementPortses } from "../../../gen/svc/v1/values.ts";
import type { CommandContext } from "../context.ts";
import { detach, detachOption, type DetachOption } from "../detach.ts";
import { UsageError } from "../output/failure.ts";
import { parseCount } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { placementText } from "../output/app-table.ts";
import { calls, type App } from "../client/calls.ts";

const replicasOf = parseCount(1, 1000, "tasks");

export interface PlacementOptions {
  readonly on?: string;
  readonly replicas?: number;
  readonly publish?: string;
}

/** @param where the values of `--on` */
export function addPlacementOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--on <engine>", "where to run the app (default: this machine)").choices(AppPlacementOns),
    )
    .option("--replicas <n>", "on a swarm: number of tasks (default: 1)", replicasOf)
    .addOption(
      new Option(
        "--publish <mode>",
        "on a swarm: publish ports on nodes that run the app (host) or on every node (mesh) (default: host)",
      ).choices(AppPlacementPortses),
    );
}

/** Undefined if the command line has no placement options. */
export function placementFrom({ on, replicas, publish }: PlacementOptions): App["placement"] {
  if (on === "swarm") {
    return { on, ...(replicas !== undefined && { replicas }), ports: publish ?? "" };
  }
  if (replicas !== undefined || publish !== undefined) {
    throw new UsageError("--replicas and --publish go with --on swarm");
  }
  return on === undefined ? undefined : { on, ports: "" };
}

export function addPlacementCommands(parent: Command, run: RunCommand): void {
  addPlacementOptions(
    parent
      .command("place")
      .description("move a stopped app to a swarm, or back to this machine")
      .argument("<id>", "the app"),
  )
    .option(...detachOption)
    .action(run((context, id: string, options: PlaceOptions) => place(context, id, options)));
  parent
    .command("scale")
    .description("set the number of tasks of an app on a swarm")
    .argument("<id>", "the app")
    .argument("<n>", "number of tasks", replicasOf)
    .action(run((context, id: string, replicas: number) => scale(context, id, replicas)));
}

type PlaceOptions = PlacementOptions & DetachOption;

async function place(context: CommandContext, id: string, options: PlaceOptions): Promise<void> {
  const placement = placementFrom(options);
  if (placement === undefined) throw new UsageError("choose where to run it: --on swarm, or --on machine");
  if (options.detach === true) {
    const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
    return detach(context, `place ${id}`, AppService.method.placeApp, { id, placement });
  }
  const app = await context.call(calls.placeApp, { id, placement });
  const text = `${app.id} will run ${placementText(app) ?? "on this machine"} after its next start`;
  await context.printResult(app, `${text}. Start it: svc start ${app.id}`);
}

async function scale(context: CommandContext, id: string, replicas: number): Promise<void> {
  const app = await context.call(calls.scaleApp, { id, replicas });
  await context.printResult(app, `${app.id} runs ${placementText(app) ?? "on this machine"}`);
}
