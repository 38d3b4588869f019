/** Gives the secrets of a build to the engine, which mounts each into the steps that name it and does not store it. */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { readFields, textOf } from "../../../engine/buildkit/control-messages.ts";
import type { SessionMethod } from "../../../engine/buildkit/session.ts";
import { SvcError } from "../../../errors.ts";
import type { PreparedBuild } from "../build-request.ts";

const getSecret = "/moby.buildkit.secrets.v1.Secrets/GetSecret";
/** BuildKit's limit. */
const maxSecretBytes = 500 * 1024;

export function secretMethods({
  userHelper,
  root,
  settings,
  signal,
}: Pick<PreparedBuild, "userHelper" | "root" | "settings" | "signal">): Map<string, SessionMethod> {
  const secrets = settings?.secrets;
  if (secrets === undefined || secrets.size === 0) return new Map();
  const read = async (id: string): Promise<Uint8Array> => {
    const secret = secrets.get(id);
    if (secret === undefined) throw new SvcError("not_found", `the build has no secret "${id}"`);
    if ("value" in secret) return Buffer.from(secret.value);
    return userHelper.readFile(root, secret.file, { maxBytes: maxSecretBytes, signal });
  };
  return new Map<string, SessionMethod>([
    [
      getSecret,
      async function* (requests) {
        for await (const request of requests) {
          const value = await read(textOf(new Map(readFields(request)).get(1)));
          yield new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(value).finish();
        }
      },
    ],
  ]);
}
