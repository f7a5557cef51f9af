// As much of WASI (snapshot preview 1) as the engine asks for: one file that can be read, a clock, and a place for what it says
// to standard error. Everything else answers that there is no such thing.
// Source: https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md

const [success, badDescriptor, invalid, noEntry, notSupported] = [0, 8, 28, 44, 52];
const [folderType, fileType] = [3, 4];
const [folder, firstFile] = [3, 4];
/** Of a file: it is copied through the page's memory. */
const mostAtOnce = 1 << 24;

export interface Wasi {
  imports: WebAssembly.Imports;
  /** Of the instance; set before its first call. */
  memory: WebAssembly.Memory;
}

/** A file that is read piece by piece. */
export interface Source {
  size: number;
  /** The bytes from `from` on, at most `length` of them. */
  read: (from: number, length: number) => Uint8Array;
}

type Call = (...given: (number | bigint)[]) => number;

/** The same for addresses from 2 GiB on, which WebAssembly gives as negative numbers. */
function unsigned(call: Call): Call {
  return (...given) => call(...given.map((one) => (typeof one === "number" ? one >>> 0 : one)));
}

/** `name`: of the file, in the only folder that there is, "/". */
export function wasi(name: string, file: Source): Wasi {
  const places = new Map<number, number>();  // where each open descriptor of the file reads next
  let said = "";
  const system: Wasi = { imports: {}, memory: new WebAssembly.Memory({ initial: 0 }) };
  const view = () => new DataView(system.memory.buffer);
  const text = (at: number, length: number) => new TextDecoder().decode(new Uint8Array(system.memory.buffer, at, length));

  /** Copies from the file at `from` into the pieces of memory that an iovec list names; returns how many bytes. */
  const scatter = (list: number, count: number, from: number): number => {
    let at = from;
    for (let i = 0; i < count; ++i) {
      const [to, length] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
      for (let done = 0; done < length; ) {
        const part = file.read(at, Math.min(length - done, mostAtOnce));
        if (part.length === 0) break;
        new Uint8Array(system.memory.buffer).set(part, to + done);
        done += part.length;
        at += part.length;
      }
    }
    return at - from;
  };
  const stat = (out: number, type: number, size: number) => {
    new Uint8Array(system.memory.buffer, out, 64).fill(0);
    view().setUint8(out + 16, type);
    view().setBigUint64(out + 24, 1n, true);
    view().setBigUint64(out + 32, BigInt(size), true);
  };
  const isFile = (path: string) => path.replace(/^(\.?\/)+/, "") === name;

  const known: Record<string, (...given: never[]) => number> = {
    fd_prestat_get(fd: number, out: number) {
      if (fd !== folder) return badDescriptor;
      view().setUint32(out, 0, true);
      view().setUint32(out + 4, 1, true);
      return success;
    },
    fd_prestat_dir_name(fd: number, out: number, length: number) {
      if (fd !== folder || length < 1) return badDescriptor;
      view().setUint8(out, "/".charCodeAt(0));
      return success;
    },
    path_open(_fd: number, _flags: number, path: number, length: number, _open: number, _rights: bigint, _inherited: bigint, _fdFlags: number, out: number) {
      if (!isFile(text(path, length))) return noEntry;
      let fd = firstFile;
      while (places.has(fd)) ++fd;
      places.set(fd, 0);
      view().setUint32(out, fd, true);
      return success;
    },
    path_filestat_get(_fd: number, _flags: number, path: number, length: number, out: number) {
      const asked = text(path, length);
      if (isFile(asked)) stat(out, fileType, file.size);
      else if (asked === "." || asked === "/" || asked === "") stat(out, folderType, 0);
      else return noEntry;
      return success;
    },
    fd_filestat_get(fd: number, out: number) {
      if (places.has(fd)) stat(out, fileType, file.size);
      else if (fd === folder) stat(out, folderType, 0);
      else return badDescriptor;
      return success;
    },
    fd_fdstat_get(fd: number, out: number) {
      if (fd > folder && !places.has(fd)) return badDescriptor;
      new Uint8Array(system.memory.buffer, out, 24).fill(0);
      view().setUint8(out, fd < folder ? 2 : fd === folder ? folderType : fileType);
      view().setBigUint64(out + 8, ~0n & 0xffffffffn, true);
      view().setBigUint64(out + 16, ~0n & 0xffffffffn, true);
      return success;
    },
    fd_fdstat_set_flags: () => success,
    fd_read(fd: number, list: number, count: number, out: number) {
      const from = places.get(fd);
      if (from === undefined) return badDescriptor;
      const read = scatter(list, count, from);
      places.set(fd, from + read);
      view().setUint32(out, read, true);
      return success;
    },
    fd_pread(fd: number, list: number, count: number, from: bigint, out: number) {
      if (!places.has(fd)) return badDescriptor;
      view().setUint32(out, scatter(list, count, Number(from)), true);
      return success;
    },
    fd_seek(fd: number, offset: bigint, whence: number, out: number) {
      const from = places.get(fd);
      if (from === undefined) return badDescriptor;
      const to = Number(offset) + (whence === 0 ? 0 : whence === 1 ? from : file.size);
      if (to < 0) return invalid;
      places.set(fd, to);
      view().setBigUint64(out, BigInt(to), true);
      return success;
    },
    fd_close(fd: number) {
      return places.delete(fd) ? success : badDescriptor;
    },
    fd_write(fd: number, list: number, count: number, out: number) {
      if (fd !== 1 && fd !== 2) return badDescriptor;
      let written = 0;
      for (let i = 0; i < count; ++i) {
        const [from, length] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
        said += text(from, length);
        written += length;
      }
      const lines = said.split("\n");
      said = lines.pop() ?? "";
      for (const line of lines) console.error(line);
      view().setUint32(out, written, true);
      return success;
    },
    environ_get: () => success,
    environ_sizes_get(count: number, size: number) {
      view().setUint32(count, 0, true);
      view().setUint32(size, 0, true);
      return success;
    },
    clock_time_get(id: number, _precision: bigint, out: number) {
      const now = id === 0 ? Date.now() : performance.now();
      view().setBigUint64(out, BigInt(Math.round(now * 1e6)), true);
      return success;
    },
    random_get(out: number, length: number) {
      for (let at = 0; at < length; at += 65536) crypto.getRandomValues(new Uint8Array(system.memory.buffer, out + at, Math.min(65536, length - at)));
      return success;
    },
    sched_yield: () => success,
    proc_exit(code: number): never {
      throw new Error(`the engine ended with ${code}${said === "" ? "" : `: ${said}`}`);
    },
  };
  system.imports = { wasi_snapshot_preview1: new Proxy(known, { get: (all, name) => unsigned((all[String(name)] as Call | undefined) ?? (() => notSupported)) }) as unknown as WebAssembly.ModuleImports };
  return system;
}
