/** Rejects instructions that regular users' builds may not contain; resource limits are in user-builds.ts. */
import { isReservedLabel } from "../../engine/attribution.ts";
import { SvcError } from "../../errors.ts";
import { excessOfExposed, excessOfMounts } from "../containers/user-bounds.ts";
import { readInstructions, unclear } from "./dockerfile-lines.ts";
import { expand, setVariables } from "./exposed-ports.ts";

/** Characters of a label name that cannot end the quotes around it. */
const quotableName = /^[A-Za-z0-9._/-]+$/;
const expandedKey = /^[^\s\u0085=]*\$|[\s\u0085][^\s\u0085=]*\$[^\s\u0085=]*=/;
const remoteSource = /^[["',]*(?:[a-z][a-z0-9+.-]*:\/\/|git@)/i;
const archiveSource = /\.(?:tar|tar\.[a-z0-9]+|tgz|tbz2?|txz|tzst)["',]*$/i;

/**
 * Returns the Dockerfile to build: ADD becomes COPY, because ADD would fetch URLs as the engine and unpack archives
 * of any size, and EXPOSE gets the values of variables, so that its ports can be counted. Line numbers stay the same.
 * @throws SvcError `denied` for ONBUILD, reserved labels, sources of ADD that COPY cannot copy, and too many ports or
 *   volumes
 */
export function restrictDockerfile(text: string): string {
  const lines = text.split("\n");
  const ports: string[] = [];
  let volumes = 0;
  const values = new Map<string, string>();
  for (const { word, isTrigger, flags, rest, line, lastLine } of readInstructions(text)) {
    if (isTrigger) throw denied(line, "ONBUILD", "write the instruction in the Dockerfile that needs it");
    if (word === "LABEL") requireOwnLabels([...flags, rest].join(" "), line);
    if (word === "FROM") values.clear();
    if (word === "ENV" || word === "ARG") setVariables(word, rest, values);
    if (word === "EXPOSE") {
      // Lines of one instruction are joined only by the engine.
      const plain = line === lastLine ? expand(rest, values) : rest;
      for (const port of exposedPorts(plain, line)) ports.push(port);
      if (plain !== rest) lines[line - 1] = `EXPOSE ${plain}`;
    }
    // Both for paths as JSON and for plain paths.
    if (word === "VOLUME") volumes += rest.split(/[ ,]+/).length;
    const [excess] = [...excessOfExposed(ports), ...excessOfMounts(volumes, "volumes")];
    if (excess !== undefined) throw tooMany(line, excess);
    if (word !== "ADD") continue;
    requireLocalSources(rest.split(" "), line);
    const first = lines[line - 1] ?? "";
    if (!/^[\t\r ]*ADD(?=[\t\v\f\r ])/i.test(first))
      throw unclear(line, "splits the word ADD over several lines");
    lines[line - 1] = first.replace(/ADD/i, "COPY");
  }
  return lines.join("\n");
}

function requireOwnLabels(text: string, line: number): void {
  const plain = text.replaceAll(/["'\\`]/g, "").trim();
  // Either `LABEL key value` or `LABEL key=value key=value`.
  const [first = "", ...others] = plain.split(/[\s\u0085]+/);
  if ([first, ...others.filter((word) => word.includes("="))].some(isReservedLabel))
    throw denied(line, "a label that svc, compose or the swarm reserves", "choose another name");
  if (expandedKey.test(plain))
    throw denied(line, "a variable in the name of a label", "write the name itself");
}

function exposedPorts(text: string, line: number): string[] {
  const ports = text.split(" ");
  const odd = ports.find((port) => !/^\d{1,5}(?:-\d{1,5})?(?:\/[a-z]+)?$/i.test(port));
  if (odd !== undefined)
    throw denied(
      line,
      `the exposed port ${odd}`,
      "write a number, such as 8080 or 8080/udp, or a variable that ARG or ENV of this stage sets",
    );
  return ports;
}

function requireLocalSources(sources: readonly string[], line: number): void {
  if (sources.some((source) => remoteSource.test(source)))
    throw denied(line, "ADD from a URL", "download the file in a RUN instruction");
  if (sources.some((source) => archiveSource.test(source)))
    throw denied(line, "ADD of an archive", "use COPY, and unpack it in a RUN instruction");
}

/**
 * Sets labels after each FROM, without changing line numbers: the engine gives the containers of a build the labels
 * of their image.
 * @param baseLabels label names of each stage's base image
 * @param mark a label for all steps
 */
export function withStageLabels(
  text: string,
  baseLabels: ReadonlyMap<number, readonly string[]>,
  mark: { readonly name: string; readonly value: string },
): string {
  const lines = text.split("\n");
  let stage = 0;
  for (const { word, lastLine } of readInstructions(text)) {
    if (word !== "FROM") continue;
    const reserved = (baseLabels.get(stage) ?? []).filter(
      (name) => isReservedLabel(name) && quotableName.test(name),
    );
    const blank = reserved.filter((name) => name !== mark.name).map((name) => `"${name}"=""`);
    const label = ["LABEL", ...blank, `"${mark.name}"="${mark.value}"`].join(" ");
    lines[lastLine - 1] = `${lines[lastLine - 1] ?? ""}\n${label}`;
    stage++;
  }
  return lines.join("\n");
}

/** @throws SvcError `denied` for a base image with ONBUILD instructions */
export function requireNoTriggers(image: string, triggers: readonly string[]): void {
  if (triggers.length === 0) return;
  const message = `the base image ${image} has ONBUILD instructions, which builds of regular users may not run; use a base image without them`;
  throw new SvcError("denied", message);
}

function tooMany(line: number, excess: string): SvcError {
  const message = `up to line ${line} the Dockerfile ${excess}, which is not allowed in builds of regular users; leave some out`;
  return new SvcError("denied", message);
}

function denied(line: number, what: string, remedy: string): SvcError {
  return new SvcError(
    "denied",
    `line ${line} of the Dockerfile has ${what}, which builds of regular users may not have; ${remedy}`,
  );
}
