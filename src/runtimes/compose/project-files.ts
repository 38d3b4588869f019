/** Chooses the files and profiles of a project as compose does. */
import { posix } from "node:path";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { entryType } from "../entry-type.ts";
import { invalid, maxFiles, maxSourceBytes } from "./compose-sources.ts";

/** The names that compose looks for, in its order. */
export const composeFileNames: readonly string[] = [
  "compose.yaml",
  "compose.yml",
  "docker-compose.yml",
  "docker-compose.yaml",
];
/** Compose merges the first that exists into a file with one of {@link composeFileNames}. */
export const overrideFileNames: readonly string[] = [
  "compose.override.yml",
  "compose.override.yaml",
  "docker-compose.override.yml",
  "docker-compose.override.yaml",
];

/** Variables by which `.env` chooses files and profiles. */
export const choiceVariables = ["COMPOSE_FILE", "COMPOSE_PATH_SEPARATOR", "COMPOSE_PROFILES"] as const;

/** The most profiles in `COMPOSE_PROFILES`: each is an argument of compose. */
const maxProfiles = 256;

/** The manifest's choices for a compose project. */
interface ProjectSection {
  /** Path relative to the checkout. */
  readonly file: string;
  readonly profiles: readonly string[];
}

export interface ProjectChoice {
  /** Paths relative to the checkout; the first determines the project directory. */
  readonly files: readonly [string, ...string[]];
  readonly profiles: readonly string[];
}

/**
 * The files to pass to compose: the manifest's file and its override file, or the list in `COMPOSE_FILE` if the manifest's
 * file is in it. Without profiles in the manifest, those of `COMPOSE_PROFILES`.
 * @param checkout path relative to `root`
 * @param readValues reads variables of the `.env` in a directory, which is relative to `root`
 * @throws SvcError `package_invalid` if `.env` lists too many
 */
export async function chooseProject(
  userHelper: Pick<UserHelper, "readFile" | "stat">,
  { root, checkout, section }: { root: string; checkout: string; section: ProjectSection },
  readValues: (directory: string, names: Iterable<string>) => Promise<ReadonlyMap<string, string>>,
): Promise<ProjectChoice> {
  const { file, profiles } = section;
  const below = posix.dirname(file);
  const directory = posix.join(checkout, below);
  const values = (await mentionsChoices(userHelper, root, posix.join(directory, ".env")))
    ? await readValues(directory, choiceVariables)
    : new Map<string, string>();
  const [first, ...others] = composeFilesIn(values).map((path) => posix.join(below, path));
  const isListed = first !== undefined && [first, ...others].includes(posix.normalize(file));
  const override = isListed ? undefined : await overrideOf(userHelper, root, checkout, file);
  return {
    files: isListed ? [first, ...others] : [file, ...(override === undefined ? [] : [override])],
    profiles:
      profiles.length > 0
        ? profiles
        : namesIn("COMPOSE_PROFILES", values.get("COMPOSE_PROFILES"), ",", maxProfiles),
  };
}

/** The paths in `COMPOSE_FILE`. @param values of {@link choiceVariables} @throws SvcError `package_invalid` */
export function composeFilesIn(values: ReadonlyMap<string, string>): string[] {
  const separator = values.get("COMPOSE_PATH_SEPARATOR") || ":";
  return namesIn("COMPOSE_FILE", values.get("COMPOSE_FILE"), separator, maxFiles);
}

function namesIn(name: string, text: string | undefined, separator: string, max: number): string[] {
  const parts = (text ?? "")
    .split(separator)
    .map((part) => part.trim())
    .filter((part) => part !== "");
  if (parts.length > max)
    throw invalid(".env", `${name} lists ${parts.length} names, more than ${max}; list fewer`);
  return parts;
}

/** Saves a run of compose for most files. A file that cannot be read here is left to compose. */
async function mentionsChoices(
  userHelper: Pick<UserHelper, "readFile" | "stat">,
  root: string,
  path: string,
): Promise<boolean> {
  if ((await entryType(userHelper, root, path)) !== "file") return false;
  const bytes = await userHelper.readFile(root, path, { maxBytes: maxSourceBytes }).catch(() => undefined);
  return bytes === undefined || /COMPOSE_(?:FILE|PROFILES)/.test(bytes.toString("latin1"));
}

async function overrideOf(
  userHelper: Pick<UserHelper, "stat">,
  root: string,
  checkout: string,
  file: string,
): Promise<string | undefined> {
  if (!composeFileNames.includes(posix.basename(file))) return undefined;
  for (const name of overrideFileNames) {
    const path = posix.join(posix.dirname(file), name);
    if ((await entryType(userHelper, root, posix.join(checkout, path))) !== undefined) return path;
  }
  return undefined;
}
