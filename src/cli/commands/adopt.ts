/** `svc adopt`: lists the compose projects and containers that svc does not manage, and turns one into an app. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { detach, detachOption, type DetachOption } from "../detach.ts";
import { examples } from "../examples.ts";
import { UsageError } from "../output/failure.ts";
import { followProgress } from "../output/follow-progress.ts";
import { runWithAdvice } from "../output/advice.ts";
import { renderTable, type Column } from "../output/table.ts";
import type { RunCommand } from "../run-command.ts";
import { acceptedBy, acceptingLicenses, type AcceptOptions } from "../input/accept-license.ts";
import { adviceOnSettings, readAssignments } from "../input/assignments.ts";
import { collect } from "../input/option-values.ts";
import { confirm, isInteractive, nothingChanged } from "../input/prompt.ts";
import { calls, type AdoptionPlan, type UnmanagedStack } from "../client/calls.ts";

interface AdoptOptions extends AcceptOptions, DetachOption {
  readonly name?: string;
  readonly dryRun?: boolean;
  readonly fromContainers?: boolean;
  readonly removeOld?: boolean;
  readonly set?: readonly string[];
}

export function addAdoptCommand(parent: Command, run: RunCommand): void {
  parent
    .command("adopt")
    .description(
      "list compose projects and containers that svc does not manage, or turn one into an app; needs root",
    )
    .argument("[name]", "compose project or container (default: list them)")
    .option("--name <name>", "name and ID of the app (default: the name of the project or container)")
    .option("-n, --dry-run", "show the plan, and change nothing")
    .option("--from-containers", "write the compose file from the containers, even if the project has files")
    .option("--remove-old", "remove the old containers when the app is healthy")
    .option(
      "--set <key=value>",
      "set a setting that .env does not set (repeatable); svc prompts for a key without a value",
      collect,
    )
    .option("--accept-license", "accept the licenses of the package")
    .option("--accept-permissions", "grant the host permissions that the app requires")
    .option(...detachOption)
    .addHelpText("after", help)
    .action(
      runWithAdvice(
        run,
        adviceOnSettings,
      )((context, name: string | undefined, options: AdoptOptions) =>
        name === undefined ? list(context) : adopt(context, name, options),
      ),
    );
}

const help = `
The app uses the volumes and mounted directories of the old containers in place. They are stopped, not removed. If the app
does not become healthy, it is removed, and the old containers run again.
${examples("svc adopt", "svc adopt shop --dry-run", "svc adopt shop --name web-shop --yes", "svc adopt shop --remove-old")}`;

const stackColumns: readonly Column<UnmanagedStack>[] = [
  { title: "NAME", value: ({ name }) => name, isKey: true },
  { title: "KIND", value: ({ kind }) => kind },
  {
    title: "RUNNING",
    value: ({ containers }) =>
      `${containers.filter(({ state }) => state === "running").length}/${containers.length}`,
  },
  {
    title: "IMAGES",
    value: ({ containers }) => [...new Set(containers.map(({ image }) => image))].join(", "),
    shrinkTo: 12,
  },
  { title: "DIRECTORY", value: ({ directory }) => directory, shrinkTo: 12 },
];

async function list(context: CommandContext): Promise<void> {
  const { stacks } = await context.call(calls.listUnmanagedStacks, {});
  if (context.json) return context.printJson(stacks);
  if (stacks.length === 0) {
    context.note("svc manages all containers of this host.");
    return;
  }
  await context.print(renderTable(stackColumns, stacks, context.tableStyle));
  context.note("Show what an adoption would do: svc adopt NAME --dry-run");
}

async function adopt(context: CommandContext, name: string, options: AdoptOptions): Promise<void> {
  const request = {
    ...{ name, appName: options.name ?? "", fromContainers: options.fromContainers === true },
    removeOld: options.removeOld === true,
  };
  const planned = async (): Promise<AdoptionPlan | undefined> =>
    (await context.call(calls.adoptStack, { ...request, dryRun: true })).plan;
  if (options.dryRun === true) {
    const plan = await planned();
    if (context.json) return context.printJson(plan);
    showPlan(context, plan);
    return;
  }
  const settingTexts = await readAssignments(context, { pairs: options.set });
  let planDigest = "";
  if (context.options.yes !== true) {
    if (context.json || !isInteractive(context.host))
      throw new UsageError(
        `this stops the containers of "${name}"; check with --dry-run, then pass --yes to confirm`,
      );
    const plan = await planned();
    showPlan(context, plan);
    if (!(await confirm(context.host, `Stop these containers and run "${name}" as an app?`)))
      throw nothingChanged();
    planDigest = plan?.digest ?? "";
  }
  const { DockerService } = await import("../../../gen/svc/v1/docker_pb.ts");
  const label = `adopt ${name}`;
  const consents = acceptedBy(options);
  const whole = { ...request, planDigest, settingTexts };
  if (options.detach === true)
    return detach(context, label, DockerService.method.adoptStack, { ...whole, ...consents });
  const result = await acceptingLicenses(context, name, consents, (accepted) =>
    followProgress(context, label, DockerService.method.adoptStackStream, { ...whole, ...accepted }),
  );
  if (context.json) return context.printJson(result);
  const { app, plan } = result;
  const old = plan?.stack?.containers.map((container) => container.name).join(" ") ?? "";
  if (options.removeOld !== true)
    context.note(`The old containers are stopped. When you no longer need them: docker rm ${old}`);
  return context.printLine(`Adopted ${name} as ${app?.id ?? ""} (logs: svc logs ${app?.id ?? ""})`);
}

function showPlan(context: CommandContext, plan: AdoptionPlan | undefined): void {
  if (plan === undefined) return;
  const { stack, directory, files, volumes, mountedPaths, notes } = plan;
  context.note(`Containers to stop:`);
  for (const { name, image, status } of stack?.containers ?? [])
    context.note(`  ${name}  ${image}  ${status}`);
  context.note(`Package: ${directory}${plan.fromContainers ? ", made from the containers" : ""}`);
  for (const { path, text } of files) {
    context.note(`svc writes ${path}:`);
    for (const line of text.trimEnd().split(/\r?\n/)) context.note(`  ${line}`);
  }
  if (plan.networks.length > 0) context.note(`Networks that stay in place: ${plan.networks.join(", ")}`);
  if (volumes.length > 0)
    context.note("Volumes that stay in place (in backups; kept when the app is removed):");
  for (const { name } of volumes) context.note(`  ${name}`);
  if (mountedPaths.length > 0) context.note("Paths that stay in place (not in backups of the app):");
  for (const path of mountedPaths) context.note(`  ${path}`);
  for (const note of notes) context.note(`note: ${note}`);
}
