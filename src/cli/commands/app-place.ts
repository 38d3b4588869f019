/** `svc app place` and `svc app scale`: on which engine an app runs, and in how many tasks. */
import { Option, type Command } from "commander";
import { AppPlacementOns, AppPlacementPortses } from "../../../gen/svc/v1/words.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { parseCount } from "../option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { placementText } from "../render/placement.ts";
import { calls, type App } from "../transport/calls.ts";

const replicasOf = parseCount(1, 1000, "tasks");

export interface PlacementOptions {
  readonly on?: string;
  readonly replicas?: number;
  readonly publish?: string;
}

/** @param where what `--on` may say */
export function addPlacementOptions(command: Command, where = AppPlacementOns): Command {
  return command
    .addOption(new Option("--on <engine>", "where it runs (default: this machine)").choices(where))
    .option("--replicas <n>", "on a swarm: in how many tasks (default: 1)", replicasOf)
    .addOption(
      new Option(
        "--publish <way>",
        "on a swarm: its ports are those of the nodes that run it, or of every node (default: host)",
      ).choices(AppPlacementPortses),
    );
}

/** Nothing where the command line says nothing. */
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
      .description("put a stopped app on a swarm, or back on this machine")
      .argument("<id>", "the app"),
  ).action(run((context, id: string, options: PlacementOptions) => place(context, id, options)));
  parent
    .command("scale")
    .description("run an app on a swarm in so many tasks")
    .argument("<id>", "the app")
    .argument("<n>", "how many", replicasOf)
    .action(run((context, id: string, replicas: number) => scale(context, id, replicas)));
}

async function place(context: CommandContext, id: string, options: PlacementOptions): Promise<void> {
  const placement = placementFrom(options);
  if (placement === undefined) throw new UsageError("say where: --on swarm, or --on machine");
  const app = await context.call(calls.placeApp, { id, placement });
  const text = `${app.id} runs ${placementText(app) ?? "on this machine"} from its next start on`;
  await context.tell(app, `${text}. Start it: svc app start ${app.id}`);
}

async function scale(context: CommandContext, id: string, replicas: number): Promise<void> {
  const app = await context.call(calls.scaleApp, { id, replicas });
  await context.tell(app, `${app.id} runs ${placementText(app) ?? "on this machine"}`);
}
