/** `svc docker df`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { formatBytes } from "../../output/units.ts";
import { calls } from "../../client/calls.ts";

export function addDfCommand(parent: Command, run: RunCommand): void {
  parent
    .command("df")
    .description("show disk usage of images, containers, volumes and the build cache (slow)")
    .action(run(show));
}

async function show(context: CommandContext): Promise<void> {
  const usage = await context.call(calls.getDockerDiskUsage, {});
  if (context.json) return context.printJson(usage);
  const rows = [
    { what: "images", ...usage.images },
    { what: "containers", ...usage.containers },
    { what: "volumes", ...usage.volumes },
    { what: "build cache", ...usage.buildCache },
  ];
  return context.printTable(
    [
      { title: "WHAT", value: ({ what }) => what },
      { title: "COUNT", value: ({ count = 0 }) => String(count), align: "right" },
      { title: "SIZE", value: ({ sizeBytes = 0 }) => formatBytes(sizeBytes), align: "right" },
    ],
    rows,
  );
}
