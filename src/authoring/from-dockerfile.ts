/** Generates a manifest for a Dockerfile: a built image with its exposed ports and its volumes. */
import { basename, posix } from "node:path";
import { portSetting, unique, type Derived } from "./derived.ts";
import { unprivilegedPort } from "../packages/settings/chosen-ports.ts";
import { readBuildKitInstructions } from "../runtimes/docker/dockerfile-lines.ts";
import { exposedPorts, type StageInstruction } from "../runtimes/docker/exposed-ports.ts";
import type { PackageFiles } from "./package-files.ts";

export async function fromDockerfile(files: PackageFiles, name: string): Promise<Derived> {
  const lines = [...readBuildKitInstructions((await files.text(name)) ?? "")];
  // Instructions of earlier stages do not affect the image.
  const stage = lines.slice(lines.findLastIndex(({ word }) => word === "FROM") + 1);
  const words = (word: string): string[] => stage.filter((line) => line.word === word).flatMap(wordsOf);
  const { ports: exposed, others: unsupported } = exposedPorts(stage);
  const volumes = unique(words("VOLUME")).filter((path) => path.startsWith("/") && !path.includes("$"));
  const env = unique(words("ENV").flatMap((text) => /^(\w+)=/.exec(text)?.[1] ?? []));
  const [first, ...others] = exposed;
  // The context is the package's root.
  const dockerfile = posix.normalize(name);
  return {
    from: name,
    notes: [
      ...(first === undefined
        ? ["the Dockerfile exposes no port; add ports if the program listens on one"]
        : []),
      ...unsupported.map(
        (text) => `EXPOSE ${text} is left out; add its ports to svc.yaml if the program needs them`,
      ),
      ...(env.length === 0
        ? []
        : [
            `variables keep the image's values (${env.join(", ")}); add settings for those that users choose`,
          ]),
      ...(stage.some(({ word }) => word === "HEALTHCHECK")
        ? ["HEALTHCHECK is ignored; set health in svc.yaml"]
        : []),
    ],
    manifest: {
      summary: "A container built from its Dockerfile.",
      docker: { build: dockerfile === "Dockerfile" ? {} : { dockerfile } },
      ...(first !== undefined && {
        settings: { properties: { port: portSetting(unprivilegedPort(first.port)) } },
        ports: [
          { name: "http", setting: "port", container_port: first.port, ...udp(first.protocol) },
          ...others.map(({ port, protocol }) => ({
            name: `port-${port}${protocol === "udp" ? "-udp" : ""}`,
            default: unprivilegedPort(port),
            container_port: port,
            ...udp(protocol),
          })),
        ],
        ...(first.protocol === "tcp" && { health: { tcp: { port: "http" } } }),
      }),
      ...(volumes.length > 0 && {
        volumes: volumes.map((path, at) => ({ name: volumeName(path, at), path })),
      }),
    },
  };
}

function udp(protocol: "tcp" | "udp"): { protocol?: "udp" } {
  return protocol === "udp" ? { protocol } : {};
}

function volumeName(path: string, at: number): string {
  const name = basename(path).replaceAll(/[^A-Za-z0-9_-]/g, "");
  return /^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$/.test(name) && at === 0 ? name : `volume-${at + 1}`;
}

/** The arguments, written as JSON or as words. */
function wordsOf({ rest }: StageInstruction): string[] {
  if (rest.startsWith("[")) {
    try {
      return (JSON.parse(rest) as unknown[]).map(String);
    } catch {
      return [];
    }
  }
  return rest.split(/\s+/);
}
