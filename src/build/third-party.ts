/** Licenses and a bill of materials of the packages in a bundle. */
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

interface Package {
  readonly name: string;
  readonly version: string;
  /** An SPDX expression. */
  readonly license: string;
  /** Contents of its license and notice files. */
  readonly texts: readonly string[];
}

export const thirdPartyFiles = { licenses: "LICENSES.txt", bom: "bom.cdx.json" } as const;

export interface BundledFiles {
  /** The checkout. */
  readonly root: string;
  /** Paths relative to `root` of all files in the bundle. */
  readonly files: Iterable<string>;
  /** The bundled product. */
  readonly product: { readonly name: string; readonly version: string; readonly license: string };
}

/** Writes both files, with equal content for equal bundles. */
export async function writeThirdPartyFiles(
  dir: string,
  { root, files, product }: BundledFiles,
): Promise<void> {
  const dirs = new Set([...files].map(packageDir).filter((each) => each !== undefined));
  const packages = await Promise.all([...dirs].sort().map((each) => readPackage(join(root, each))));
  const own = await readFile(join(root, "LICENSE"), "utf8");
  await writeFile(join(dir, "LICENSE"), own);
  await writeFile(join(dir, thirdPartyFiles.licenses), packages.map(licenseSection).join("\n"));
  await writeFile(join(dir, thirdPartyFiles.bom), billText(billOf(product, packages)));
}

/** `node_modules/a/node_modules/@b/c/d.js` → `node_modules/a/node_modules/@b/c` */
function packageDir(file: string): string | undefined {
  return /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1];
}

async function readPackage(dir: string): Promise<Package> {
  const { name, version, license } = JSON.parse(await readFile(join(dir, "package.json"), "utf8")) as {
    readonly name: string;
    readonly version: string;
    readonly license?: unknown;
  };
  if (typeof license !== "string")
    throw new Error(`${name} declares no license, so it cannot be distributed`);
  const names = (await readdir(dir)).filter((each) => /^(?:licen[cs]e|notice|copying)(?:[.-]|$)/i.test(each));
  const texts = await Promise.all(names.sort().map((each) => readFile(join(dir, each), "utf8")));
  return { name, version, license, texts };
}

/** A license section of the file. */
export function licenseSection({ name, version, license, texts }: Package): string {
  const rule = "=".repeat(80);
  const body =
    texts.length === 0
      ? `Declared license: ${license}.\n`
      : texts.map((text) => `${text.trim()}\n`).join("\n");
  return `${rule}\n${name} ${version} (${license})\n${rule}\n\n${body}`;
}

/** Adds a component to a bill of materials. */
export function billWith(bom: string, component: object): string {
  const bill = JSON.parse(bom) as { readonly components: readonly object[] };
  return billText({ ...bill, components: [...bill.components, component] });
}

function billText(bill: object): string {
  return `${JSON.stringify(bill, undefined, 2)}\n`;
}

/** CycloneDX 1.6 without a serial number or time, so that builds are reproducible. */
function billOf(product: BundledFiles["product"], packages: readonly Package[]): object {
  const component = ({ name, version, license }: Omit<Package, "texts">): object => ({
    name,
    version,
    licenses: [{ expression: license }],
    purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
  });
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { type: "application", ...component(product) } },
    components: packages.map((each) => ({
      type: "library",
      "bom-ref": `${each.name}@${each.version}`,
      ...component(each),
    })),
  };
}
