/** `svc install`: a package becomes an app; licenses and ambiguous names are asked about, or answered by flags. */
import type { Command } from "commander";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { InstallAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { resolve } from "node:path";
import { SvcError, type ReasonPayloads } from "../../errors.ts";
import { shellWord } from "../../lib/shell-word.ts";
import { absoluteIfPath } from "../absolute-path.ts";
import { acceptedBy, acceptingLicenses, type AcceptOptions } from "../accept-license.ts";
import { runWithAdvice } from "../advice.ts";
import { comeUp, noWaitOption, waitOption, type ComeUpOptions } from "../come-up.ts";
import type { CommandContext } from "../context.ts";
import { addPlacementOptions, placementFrom, type PlacementOptions } from "./app-place.ts";
import { AdvisedError, asSvcError, ReportedError } from "../failure.ts";
import { examples } from "../examples.ts";
import { exists } from "../exists.ts";
import { readsFilesHere } from "../nodes/choose-node.ts";
import { collect } from "../option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { choose, isInteractive } from "../prompt.ts";
import { packageAt } from "../package-plan.ts";
import { portsText } from "../render/app-table.ts";
import { followProgress } from "../follow-progress.ts";
import {
  adviceOnSettings,
  readAssignments,
  setFileOption,
  setStdinOption,
  type Assignments,
} from "../assignments.ts";
import { calls, type App } from "../transport/calls.ts";

interface InstallOptions extends AcceptOptions, PlacementOptions, ComeUpOptions, Omit<Assignments, "pairs"> {
  readonly source?: string;
  readonly name?: string;
  readonly branch?: string;
  readonly tag?: string;
  readonly set?: readonly string[];
  readonly start?: boolean;
  readonly private?: boolean;
  readonly portAuto?: boolean;
}

type InstallRequest = MessageInitShape<typeof InstallAppRequestSchema>;

export function addInstallCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("install")
    .description("install an app from a source, a git URL or a directory")
    .argument("<spec>", "package id, source/id, either with @tag; a git URL; a directory; or a compose file")
    .option("--source <name>", "look in this source only")
    .option("--name <name>", "display name (default: the package's)")
    .option("--branch <branch>", "install and track a branch")
    .option("--tag <tag>", "install this tag (default: the newest version)")
    .option("--accept-license", "accept the licenses of the package")
    .option("--accept-permissions", "give the package the permissions on the host that it asks for")
    .option(
      "--set <key=value>",
      "choose a setting; again for more; JSON values are taken as such; without a value it is asked for",
      collect,
    )
    .option(...setFileOption)
    .option(...setStdinOption)
    .option("--port-auto", "take a free port where the default one is taken")
    .option("--start", "start the app when it is installed")
    .option(...waitOption)
    .option(...noWaitOption)
    .option("--private", "install for yourself alone, though the system's daemon only does not run");
  addPlacementOptions(command)
    .addHelpText(
      "after",
      examples(
        "svc install svc/forgejo --start",
        "svc install hello@1.1.0 --set port=8081 --set-file motd=motd.txt",
        "svc install https://git.example.org/blog.git --branch main --start",
        "svc install ./blog --start",
        "svc install ./compose.yaml",
      ),
    )
    .action(runWithAdvice(run, adviceOnSettings)(install));
}

async function install(context: CommandContext, spec: string, options: InstallOptions): Promise<void> {
  context.privacy = options.private === true ? "wanted" : "asked";
  const placement = placementFrom(options);
  const wanted = absoluteIfPath(context, spec);
  const request = {
    spec: wanted === spec && !spec.startsWith("/") ? spec : await packageAt(context, wanted),
    source: options.source ?? "",
    name: options.name ?? "",
    branch: options.branch ?? "",
    tag: options.tag ?? "",
    portAuto: options.portAuto ?? false,
    ...(placement !== undefined && { placement }),
    ...acceptedBy(options),
    settings: await readAssignments(context, { ...options, pairs: options.set }),
  };
  let app = await installAsking(context, request).catch(async (error: unknown) => {
    const { cloneWithoutManifest } = await import("../clone-repository.ts");
    const dir = await cloneWithoutManifest(
      context,
      request.branch || request.tag,
      byWhatIsHere(context, wanted, error),
    );
    return installAsking(context, { ...request, spec: dir, source: "", branch: "", tag: "" });
  });
  if (options.start === true) {
    if (!context.json) context.note(`Installed ${app.id} ${app.version}; starting it.`);
    app = await startInstalled(context, app.id, options);
  }
  if (context.json) return context.printJson(app);
  const next = options.start === true ? `Logs: svc app logs ${app.id}` : `Start it: svc app start ${app.id}`;
  const did = options.start === true ? "Running" : "Installed";
  // Those of a first install are as its package says, and wait for its start.
  const isTold = options.start === true || options.portAuto === true || app.id !== app.package_id;
  const ports = isTold && app.ports.length > 0 ? ` on port ${portsText(app.ports)}` : "";
  return context.printLine(`${did} ${app.id} ${app.version}${ports}. ${next}`);
}

/** A path that leads nowhere, and a directory that was taken for a package of a source, are said as such. @param spec a path is absolute */
function byWhatIsHere({ host, options }: CommandContext, spec: string, error: unknown): unknown {
  const known = asSvcError(error);
  if (known === undefined || !readsFilesHere(host, options)) return error;
  if (known.reason === "no_manifest" && spec.startsWith("/") && !exists(spec))
    return new AdvisedError(known, `there is no ${spec}`);
  const isWhat = known.reason === "not_found" || namesNoPackage(known);
  return isWhat && !spec.startsWith("/") && !spec.includes(":") && exists(resolve(spec))
    ? new AdvisedError(known, `${known.message}; what is here: svc install ${shellWord(`./${spec}`)}`)
    : error;
}

/** Whether it is the spec itself that is refused, as one whose source there is not. */
function namesNoPackage({ reason, payload }: SvcError): boolean {
  if (reason !== "invalid_request") return false;
  const { violations = [] } = payload as ReasonPayloads["invalid_request"];
  return violations.length > 0 && violations.every(({ field = "" }) => ["spec", "source"].includes(field));
}

/** The command line names no id: what is to be done next goes by the one that the app was given. */
async function startInstalled(context: CommandContext, id: string, options: ComeUpOptions): Promise<App> {
  try {
    return await comeUp(context, await context.call(calls.startApp, { id }), options);
  } catch (error) {
    throw new ReportedError(context.report(error, id));
  }
}

/** Installs; what the daemon wants to know first is asked at a terminal. */
export async function installAsking(context: CommandContext, request: InstallRequest): Promise<App> {
  try {
    const accepted = {
      licenseAck: request.licenseAck === true,
      permissionsAck: request.permissionsAck === true,
    };
    return await acceptingLicenses(context, request.spec ?? "", accepted, (said) =>
      installOnce(context, { ...request, ...said }),
    );
  } catch (thrown) {
    const error = asSvcError(thrown);
    if (error?.reason !== "ambiguous") throw thrown;
    return installAsking(context, { ...request, spec: await chooseCandidate(context, error) });
  }
}

async function installOnce(context: CommandContext, request: InstallRequest): Promise<App> {
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  const label = `install ${request.spec ?? ""}`;
  return followProgress(context, label, AppService.method.installAppStream, request);
}

/** @returns the spec of the chosen package @throws the error with the candidates in words when nobody can be asked */
async function chooseCandidate(context: CommandContext, error: SvcError): Promise<string> {
  const { candidates = [] } = error.payload as ReasonPayloads["ambiguous"];
  const specs = candidates.map(({ spec = "" }) => spec);
  if (!isInteractive(context.host) || specs.length === 0) {
    const list = specs.map((spec) => `svc install ${spec}`).join(", ");
    throw new SvcError("ambiguous", `${error.message}; say which one: ${list}`, {
      payload: { candidates },
    });
  }
  context.note(error.message);
  candidates.forEach(({ spec = "", name = "", summary = "" }, at) => {
    context.note(`  ${at + 1}. ${spec}  ${name}${summary === "" ? "" : `: ${summary}`}`);
  });
  return specs[(await choose(context.host, specs.length)) - 1] ?? "";
}
