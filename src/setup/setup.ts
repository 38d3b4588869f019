/**
 * Writes the files that a host or user needs in addition to the program (`svc setup`). Never changes existing files.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { configTemplate } from "../daemon/config-template.ts";
import { loadConfig } from "../daemon/config.ts";
import { defaultPaths, type PathEnvironment } from "../daemon/paths.ts";
import { SvcError } from "../errors.ts";
import { addressText, otherLoopbackOf } from "../lib/tcp-address.ts";
import { makeDirectory } from "../lib/make-directory.ts";
import { xdgDir } from "../lib/paths.ts";
import { unitText } from "../lib/unit-text.ts";

export interface SetupOptions {
  readonly environment: PathEnvironment;
  /** The command line with which a unit starts svc. */
  readonly command: readonly string[];
  /** Directory of the units that come with svc. */
  readonly unitsDir: string;
  readonly completions: Readonly<Record<"bash" | "zsh" | "fish", string>>;
  /** Default: the host's root. */
  readonly root?: string;
  /** Default: the version of the installed systemd; undefined if there is none. */
  readonly systemdVersion?: number | undefined;
}

export interface SetupResult {
  readonly written: readonly string[];
  /** Paths that already existed. */
  readonly kept: readonly string[];
  /** Commands for the user to run next. */
  readonly next: readonly string[];
}

const systemctlMs = 60_000;
const tcpUnit = "svc-tcp.socket";
const unitNames = ["svc.service", "svc.socket", tcpUnit];

interface Piece {
  readonly path: string;
  readonly text: string;
  /** Path of the same file if a system package installed it. */
  readonly packaged?: string;
}

export async function setUp(options: SetupOptions): Promise<SetupResult> {
  const { root = "/" } = options;
  const written: string[] = [];
  const kept: string[] = [];
  for (const { path, text, packaged } of await piecesOf(options)) {
    if (packaged !== undefined && existsSync(join(root, packaged))) kept.push(packaged);
    else if (await writeNew(join(root, path), text)) written.push(path);
    else kept.push(path);
  }
  const has = (paths: readonly string[], name: string): boolean =>
    paths.some((path) => path.endsWith(`/${name}`));
  // An older setup had no unit for the port, so its service does not enable this unit.
  const isTcpAdded = has(written, tcpUnit) && has(kept, "svc.service");
  return { written, kept, next: isTcpAdded ? tcpSteps(options) : nextSteps(options) };
}

async function piecesOf(options: SetupOptions): Promise<Piece[]> {
  const { environment, root = "/" } = options;
  const { configFile } = defaultPaths(environment);
  const pieces = [
    { path: configFile, text: configTemplate(configFile, environment) },
    ...completionsOf(options),
  ];
  return isUnderSystemd(root) ? [...pieces, ...(await unitsOf(options))] : pieces;
}

function completionsOf({ environment, completions }: SetupOptions): Piece[] {
  if (environment.uid === 0) {
    return [
      [
        "/usr/local/share/bash-completion/completions/svc",
        "bash-completion/completions/svc",
        completions.bash,
      ],
      ["/usr/local/share/zsh/site-functions/_svc", "zsh/vendor-completions/_svc", completions.zsh],
      // Fish searches /usr/local/share only if XDG_DATA_DIRS names it, which is not set in a login over ssh.
      ["/etc/fish/completions/svc.fish", "fish/vendor_completions.d/svc.fish", completions.fish],
    ].map(([path = "", packaged = "", text = ""]) => ({
      ...{ path, text },
      packaged: join("/usr/share", packaged),
    }));
  }
  // Zsh searches no completion directory of the user by default.
  return [
    {
      path: join(xdgDir(environment, "XDG_DATA_HOME", ".local/share"), "bash-completion/completions/svc"),
      text: completions.bash,
    },
    {
      path: join(xdgDir(environment, "XDG_CONFIG_HOME", ".config"), "fish/completions/svc.fish"),
      text: completions.fish,
    },
  ];
}

async function unitsOf(options: SetupOptions): Promise<Piece[]> {
  const { environment, unitsDir, command } = options;
  const version = options.systemdVersion ?? (await systemdVersion());
  const isSystem = environment.uid === 0;
  const from = isSystem ? unitsDir : join(unitsDir, "user");
  const to = isSystem
    ? "/etc/systemd/system"
    : join(xdgDir(environment, "XDG_CONFIG_HOME", ".config"), "systemd/user");
  const start = `ExecStart=${command.map(quoted).join(" ")} daemon`;
  const listen = (await configuredAddresses(options)).map((address) => `ListenStream=${address}`).join("\n");
  return Promise.all(
    unitNames.map(async (name) => ({
      path: join(to, name),
      text: unitText(await readFile(join(from, name), "utf8"), version)
        .replace(/^ExecStart=.*$/m, () => start)
        .replace(/^ListenStream=127\..*\n(?:#.*\n)*ListenStream=\[::1\].*$/m, () => listen),
      ...(isSystem && { packaged: join("/usr/lib/systemd/system", name) }),
    })),
  );
}

/**
 * The TCP addresses that systemd should hold: the configured one and the other loopback address. Uses the default
 * address if the configuration cannot be read or has port 0.
 */
async function configuredAddresses({ environment, root = "/" }: SetupOptions): Promise<string[]> {
  const file = join(root, defaultPaths(environment).configFile);
  const config = await loadConfig({ file, environment }).catch((error: unknown) => {
    if (error instanceof SvcError) return undefined;
    throw error;
  });
  const { host, port } = config?.api.listen ?? { host: "127.0.0.1", port: 0 };
  const address =
    port === 0
      ? { host: "127.0.0.1", port: 8420 }
      : { host: host === "localhost" ? "127.0.0.1" : host, port };
  const other = otherLoopbackOf(address);
  return [address, ...(other === undefined ? [] : [other])].map(addressText);
}

/** @returns 0 if the version is unknown */
async function systemdVersion(): Promise<number> {
  try {
    const { stdout } = await promisify(execFile)("systemctl", ["--version"], { timeout: systemctlMs });
    return Number(/^systemd (\d+)/.exec(stdout)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

// `enable` makes systemd reload its units, too.
function nextSteps({ environment, root = "/" }: SetupOptions): string[] {
  if (!isUnderSystemd(root)) return ["svc daemon"];
  if (environment.uid === 0) return ["systemctl enable --now svc"];
  const { username } = userInfo();
  const lingers = existsSync(join(root, "var/lib/systemd/linger", username));
  return [
    // Without lingering, the user's daemon stops at the end of the last session.
    ...(lingers ? [] : ["loginctl enable-linger"]),
    "systemctl --user enable --now svc",
  ];
}

/** Stops the service first: systemd cannot start a socket while its service runs. */
function tcpSteps({ environment }: SetupOptions): string[] {
  const systemctl = environment.uid === 0 ? "systemctl" : "systemctl --user";
  return [
    `${systemctl} daemon-reload`,
    `${systemctl} stop svc`,
    `${systemctl} enable --now ${tcpUnit}`,
    `${systemctl} start svc`,
  ];
}

function isUnderSystemd(root: string): boolean {
  return existsSync(join(root, "run/systemd/system"));
}

/** Quotes a word of a command line for systemd (systemd.service(5)). */
function quoted(word: string): string {
  const text = word.replaceAll("%", "%%").replaceAll("$", () => "$$");
  return /^[\w@%+=:,./$-]+$/.test(text) ? text : `"${text.replaceAll(/["\\]/g, "\\$&")}"`;
}

/** @returns whether the file was created */
async function writeNew(path: string, text: string): Promise<boolean> {
  await makeDirectory(dirname(path), 0o755);
  try {
    await writeFile(path, text, { flag: "wx", mode: 0o644 });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}
