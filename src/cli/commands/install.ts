/** `svc install`: installs a package as an app. Asks about licenses and ambiguous names unless flags answer. */
import { Option, type Command } from "commander";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { InstallAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { isIPv6 } from "node:net";
import { basename, resolve } from "node:path";
import { SvcError, type ReasonPayloads } from "../../errors.ts";
import { shellWord } from "../../lib/shell-word.ts";
import { whereText } from "../app-url.ts";
import { listAllApps } from "../pages.ts";
import { absoluteIfPath } from "../input/absolute-path.ts";
import { acceptedBy, acceptingLicenses, type AcceptOptions } from "../input/accept-license.ts";
import { runWithAdvice } from "../output/advice.ts";
import { startAndWait, noWaitOption, waitOption, type WaitOptions } from "../wait-until-up.ts";
import type { CommandContext } from "../context.ts";
import { addPlacementOptions, placementFrom, type PlacementOptions } from "./app-place.ts";
import { detach, detachOption, type DetachOption } from "../detach.ts";
import { AdvisedError, asSvcError, ReportedError, UsageError } from "../output/failure.ts";
import { examples } from "../examples.ts";
import { exists } from "../exists.ts";
import { readsFilesHere } from "../nodes/choose-node.ts";
import { splitFragment } from "../../packages/git/git-url.ts";
import { collect } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { choose, confirm, isInteractive, nothingChanged } from "../input/prompt.ts";
import { packageAt } from "../packages/package-plan.ts";
import { portsText } from "../output/app-table.ts";
import { followProgress } from "../output/follow-progress.ts";
import {
  adviceOnSettings,
  guessedValues,
  readAssignments,
  setFileOption,
  setStdinOption,
  type Assignments,
} from "../input/assignments.ts";
import { calls, type App } from "../client/calls.ts";

interface InstallOptions
  extends AcceptOptions, PlacementOptions, WaitOptions, DetachOption, Omit<Assignments, "pairs"> {
  readonly source?: string;
  readonly name?: string;
  readonly branch?: string;
  readonly version?: string;
  readonly tag?: string;
  readonly set?: readonly string[];
  readonly start?: boolean;
  readonly dryRun?: boolean;
}

type InstallRequest = MessageInitShape<typeof InstallAppRequestSchema>;

export function addInstallCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("install")
    .description("install an app from a source, a git URL or a directory")
    .argument(
      "<spec>",
      "a package ID or source/ID, optionally with @tag; a git URL, optionally with #ref:dir; a directory; or a compose file",
    )
    .option("--source <name>", "look in this source only")
    .option("--name <name>", "name and ID of the app (default: the package's ID)")
    .option("--branch <branch>", "install and track a branch")
    .option(
      "--version <tag>",
      "install this version: a tag, or the full hash of a commit (default: the newest version)",
    )
    // Older scripts pass it.
    .addOption(new Option("--tag <tag>").conflicts("version").hideHelp())
    .option("--accept-license", "accept the licenses of the package")
    .option("--accept-permissions", "grant the host permissions that the package requires")
    .option(
      "--set <key=value>",
      "set a setting (repeatable); a value is parsed as JSON, except for text settings; svc prompts for a key without a value",
      collect,
    )
    .option(...setFileOption)
    .option(...setStdinOption)
    .addOption(new Option("--port-auto", "has no effect: every install picks free ports").hideHelp())
    .option("--dry-run", "show or check the package and its permissions, and change nothing")
    .option("--start", "start the app after installing")
    .option(...waitOption)
    .option(...noWaitOption)
    .option(...detachOption)
    // Older scripts pass it. Without a system socket, the private store is used anyway.
    .addOption(new Option("--private").hideHelp());
  addPlacementOptions(command)
    .addHelpText(
      "after",
      examples(
        "svc install svc/forgejo --start",
        "svc install svc/forgejo --set port=3001 --set-file motd=motd.txt",
        "svc install https://git.example.org/blog.git --version v1.2.0 --start",
        "svc install https://git.example.org/blog.git --branch main --start",
        "svc install 'https://git.example.org/tools.git#v1.0:blog'",
        "svc install ./blog --name team-blog --start",
        "svc install ./compose.yaml",
      ),
    )
    .action(runWithAdvice(run, adviceOnSettings)(install));
}

async function install(context: CommandContext, typed: string, options: InstallOptions): Promise<void> {
  const spec = isComposeFile(context, typed) ? `./${typed}` : typed;
  if (options.detach === true && options.start === true)
    throw new UsageError(
      "--start cannot be used with --detach: start the app when the operation has finished",
    );
  if (options.dryRun === true) return showPlan(context, spec, options);
  const placement = placementFrom(options);
  const absolute = absoluteIfPath(context, spec);
  const settingTexts = await readAssignments(context, { ...options, pairs: options.set });
  const request = {
    spec: absolute === spec && !spec.startsWith("/") ? spec : await packageAt(context, absolute),
    source: options.source ?? "",
    name: options.name ?? "",
    branch: options.branch ?? "",
    tag: options.version ?? options.tag ?? "",
    ...(placement !== undefined && { placement }),
    ...acceptedBy(options),
    ...{ settingTexts, settings: guessedValues(settingTexts) },
  };
  if (request.name === "" && request.spec.startsWith("/")) await confirmSecond(context, request.spec);
  if (options.detach === true) {
    const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
    return detach(context, `install ${spec}`, AppService.method.installApp, request);
  }
  let app = await installWithQuestions(context, request).catch(async (error: unknown) => {
    const { cloneWithoutManifest } = await import("../packages/clone-repository.ts");
    const dir = await cloneWithoutManifest(
      context,
      request.branch || request.tag || splitFragment(spec).ref,
      explainSpec(context, absolute, error),
    );
    return installWithQuestions(context, { ...request, spec: dir, source: "", branch: "", tag: "" });
  });
  noteBranch(context, request, app);
  if (options.start === true) {
    if (!context.json) context.note(`Installed ${app.id} ${app.version}; starting it.`);
    app = await startInstalled(context, app.id, options);
  }
  if (context.json) return context.printJson(app);
  if (options.start === true) {
    const where = await whereText(context, app);
    return context.printLine(`Running ${app.id} ${app.version}${where} (logs: svc logs ${app.id})`);
  }
  const where = await wherePublished(context, app);
  return context.printLine(`Installed ${app.id} ${app.version}${where}. Start it: svc start ${app.id}`);
}

/**
 * Asks before a second app is installed from a directory; without a person at a terminal, warns. Docker compose users
 * install again to apply changes.
 * @throws SvcError `not_possible` if the user declines
 */
async function confirmSecond(context: CommandContext, dir: string): Promise<void> {
  const { host, options } = context;
  if (!readsFilesHere(host, options)) return;
  const apps = (await listAllApps(context)).filter(
    ({ origin }) => origin?.kind === "directory" && origin.source === "" && origin.url === dir,
  );
  if (apps.length === 0) return;
  const { caller } = await context.call(calls.getStatus, {});
  const same = apps.find(({ owner }) => owner === caller?.uid);
  if (same === undefined) return;
  const known = `${dir} is already installed as ${same.id}; to apply changes: svc upgrade ${same.id}`;
  if (options.yes === true || !isInteractive(host)) {
    if (!context.json) context.note(`warning: ${known}; this installs a second app with its own data`);
    return;
  }
  context.note(known);
  if (!(await confirm(host, "Install a second app with its own data?"))) throw nothingChanged();
}

/** A compose file needs no `./`, as in docker compose -f. */
function isComposeFile({ host, options }: CommandContext, spec: string): boolean {
  const isFile = /^[^./:@][^:@]*\.ya?ml$/.test(spec) && basename(spec) !== "svc.yaml";
  return isFile && readsFilesHere(host, options) && exists(resolve(spec));
}

/** Names the branch that an app tracks because its tags have no newest version. */
function noteBranch(context: CommandContext, { spec, branch }: InstallRequest, { origin }: App): void {
  if (context.json || origin === undefined || origin.branch === "" || origin.source !== "") return;
  if (branch !== "" || splitFragment(spec ?? "").ref !== "") return;
  context.note(
    `${origin.url} has no tag with the newest version, so upgrades follow its branch ${origin.branch}. To install a tag, pass --version TAG.`,
  );
}

async function showPlan(
  context: CommandContext,
  spec: string,
  { source, set = [] }: InstallOptions,
): Promise<void> {
  const path = absoluteIfPath(context, spec);
  if (path.startsWith("/") && readsFilesHere(context.host, context.options))
    return showLocalPlan(context, path, set);
  const id = /^(?:[^@:/.][^@:/]*\/)?[^@:/.][^@:/]*(?=@|$)/.exec(spec)?.[0];
  if (id === undefined)
    throw new UsageError("--dry-run does not read git URLs: clone the repository, and pass its directory");
  const { showSource } = await import("./search.ts");
  try {
    await showSource(context, source === undefined || id.includes("/") ? id : `${source}/${id}`);
  } catch (error) {
    throw explainSpec(context, path, error);
  }
}

/** Shows the manifest that would be generated, or checks the one of the package. */
async function showLocalPlan(context: CommandContext, path: string, pairs: readonly string[]): Promise<void> {
  const dir = await packageAt(context, path, { dryRun: true });
  if (dir === undefined) return;
  const { check } = await import("./package.ts");
  const manifest = await check(context, dir);
  if (manifest === undefined || context.json) return;
  const { noteNeeds } = await import("../packages/install-needs.ts");
  await noteNeeds(context, manifest, pairs);
}

/** ` on port 8080`, or ` on 127.0.0.1:8080` for a port that the container engine publishes. */
async function wherePublished(context: CommandContext, { id, runtime, ports }: App): Promise<string> {
  if (ports.length === 0) return "";
  const isContainer = runtime === "docker" || runtime === "compose";
  const { ports: published } = isContainer ? await context.call(calls.listAppPorts, { id }) : { ports: [] };
  if (published.every(({ addresses }) => addresses.length === 0)) return ` on port ${portsText(ports)}`;
  const listed = published.flatMap((port) =>
    port.addresses.map((address) => `${isIPv6(address) ? `[${address}]` : address}:${portsText([port])}`),
  );
  return ` on ${listed.join(", ")}`;
}

/**
 * Explains a spec that is not a package: a path that does not exist, an image, or the name of a directory, which was
 * looked up in the sources.
 * @param spec with absolute paths
 */
function explainSpec({ host, options }: CommandContext, spec: string, error: unknown): unknown {
  const known = asSvcError(error);
  if (known === undefined || !readsFilesHere(host, options)) return error;
  if (known.reason === "no_manifest" && spec.startsWith("/") && !exists(spec))
    return new AdvisedError(
      known,
      `${spec} does not exist; check the path, or list packages with: svc search`,
    );
  if (looksLikeImage.test(spec) && known.reason !== "license_required")
    return new AdvisedError(
      known,
      `${known.message}; to run an image, write a compose file: svc install ./compose.yaml`,
    );
  const isUnknownPackage = known.reason === "not_found" || namesNoPackage(known);
  return isUnknownPackage && !spec.startsWith("/") && !spec.includes(":") && exists(resolve(spec))
    ? new AdvisedError(
        known,
        `${known.message}; to install the local path: svc install ${shellWord(`./${spec}`)}`,
      )
    : error;
}

/** `nginx:1.27`, `docker.io/library/nginx` or `ghcr.io/me/app:1`, as docker run accepts them; no git host has such a name. */
const looksLikeImage = /^(?:(?:docker|ghcr|quay)\.io\/[\w./-]+(?::[\w.-]+)?|[a-z\d][\w-]*:[\w.-]+)$/;

/** Whether the spec itself was rejected, for example because its source does not exist. */
function namesNoPackage({ reason, payload }: SvcError): boolean {
  if (reason !== "invalid_request") return false;
  const { violations = [] } = payload as ReasonPayloads["invalid_request"];
  return violations.length > 0 && violations.every(({ field = "" }) => ["spec", "source"].includes(field));
}

/** Later advice names the ID that the app was given, since the command line has none. */
async function startInstalled(context: CommandContext, id: string, options: WaitOptions): Promise<App> {
  try {
    return await startAndWait(context, id, calls.startApp, options);
  } catch (error) {
    throw new ReportedError(await context.report(error, id));
  }
}

/** Installs, and asks at a terminal for the consents and choices that the daemon requires. */
export async function installWithQuestions(context: CommandContext, request: InstallRequest): Promise<App> {
  try {
    const accepted = {
      licenseAck: request.licenseAck === true,
      permissionsAck: request.permissionsAck === true,
    };
    return await acceptingLicenses(context, request.spec ?? "", accepted, (consents) =>
      installOnce(context, { ...request, ...consents }),
    );
  } catch (thrown) {
    const error = asSvcError(thrown);
    if (error?.reason !== "ambiguous") throw thrown;
    return installWithQuestions(context, { ...request, spec: await chooseCandidate(context, error) });
  }
}

async function installOnce(context: CommandContext, request: InstallRequest): Promise<App> {
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  const label = `install ${request.name || shortName(request.spec ?? "")}`;
  return followProgress(context, label, AppService.method.installAppStream, request);
}

/** `app.git` for a URL and the directory's name for a path, since progress messages have the rest. */
function shortName(spec: string): string {
  return /^(?:[^#?]*[/:])?([^#?/:]+)/.exec(spec)?.[1] ?? spec;
}

/**
 * @returns the spec of the chosen package
 * @throws the error with the candidates in its message without a terminal
 */
async function chooseCandidate(context: CommandContext, error: SvcError): Promise<string> {
  const { candidates = [] } = error.payload as ReasonPayloads["ambiguous"];
  const specs = candidates.map(({ spec = "" }) => spec);
  if (!isInteractive(context.host) || specs.length === 0) {
    const list = specs.map((spec) => `svc install ${spec}`).join(", ");
    throw new SvcError("ambiguous", `${error.message}; choose one: ${list}`, {
      payload: { candidates },
    });
  }
  context.note(error.message);
  candidates.forEach(({ spec = "", name = "", summary = "" }, at) => {
    context.note(`  ${at + 1}. ${spec}  ${name}${summary === "" ? "" : `: ${summary}`}`);
  });
  return specs[(await choose(context.host, specs.length)) - 1] ?? "";
}
