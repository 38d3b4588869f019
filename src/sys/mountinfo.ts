/** The kernel's list of mounts (proc_pid_mountinfo(5)). */

export interface Mount {
  /** Number of the device, `major:minor`. */
  readonly device: string;
  /** The mounted directory within its file system. */
  readonly root: string;
  readonly mountPoint: string;
  /** Type of the file system. */
  readonly type: string;
  /** The mounted source, such as the path of a device. */
  readonly source: string;
  /** Options of the file system, separated by commas. */
  readonly options: string;
}

/** @param text the content of a `mountinfo` file */
export function parseMounts(text: string): Mount[] {
  return text.split("\n").flatMap((line) => {
    const fields = line.split(" ");
    const [, , device = "", root = "", mountPoint = ""] = fields;
    // The first "-" ends the optional fields. The source may be "-", too: its user chooses it.
    const separator = fields.indexOf("-");
    if (separator < 0) return [];
    const [type = "", source = "", options = ""] = fields.slice(separator + 1);
    return [
      {
        device,
        root: unescape(root),
        mountPoint: unescape(mountPoint),
        type,
        source: unescape(source),
        options,
      },
    ];
  });
}

/** Decodes spaces and similar characters, which are written as three octal digits. */
function unescape(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}
