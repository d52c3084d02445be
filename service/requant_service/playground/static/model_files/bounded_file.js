/** A file that is read in pieces. Lengths and offsets in it are anybody's numbers: each is checked before it is used. */

const PAGE = 1 << 16;
const MAX_PAGES = 256;
// No part of a file that is read at once is larger.
const MAX_PIECE = 1 << 25;

export class BoundedFile {
  #blob;
  #pages = new Map();

  /** @param {Blob} blob such as a File: `slice` reads no more than is asked for */
  constructor(blob) {
    this.#blob = blob;
    this.size = blob.size;
  }

  /** @returns {Promise<DataView>} a piece. @throws {Error} if the file does not have it, or it is too large */
  async view(at, length) {
    this.check(at, length);
    if (length > MAX_PIECE) throw new Error(`The file has a part of ${length} bytes, which is more than is read at once.`);
    const first = Math.floor(at / PAGE);
    if (at + length <= (first + 1) * PAGE) return new DataView(await this.#page(first), at - first * PAGE, length);
    return new DataView(await this.#blob.slice(at, at + length).arrayBuffer());
  }

  /** @throws {Error} unless the file has these bytes */
  check(at, length) {
    if (!Number.isSafeInteger(at) || !Number.isSafeInteger(length) || at < 0 || length < 0 || at + length > this.size) {
      throw new Error("The file is cut off, or is no file of this kind.");
    }
  }

  async u8(at) {
    return (await this.view(at, 1)).getUint8(0);
  }

  async u16(at) {
    return (await this.view(at, 2)).getUint16(0, true);
  }

  async u32(at) {
    return (await this.view(at, 4)).getUint32(0, true);
  }

  async i32(at) {
    return (await this.view(at, 4)).getInt32(0, true);
  }

  /** @throws {Error} for more than 53 bits, which no size or count of a file has */
  async u64(at) {
    const value = Number((await this.view(at, 8)).getBigUint64(0, true));
    if (!Number.isSafeInteger(value)) throw new Error("The file has a length of more than 53 bits.");
    return value;
  }

  /** @returns {Promise<string>} UTF-8; what is none is replaced */
  async text(at, length) {
    return new TextDecoder().decode(await this.view(at, length));
  }

  async #page(index) {
    let page = this.#pages.get(index);
    if (!page) {
      if (this.#pages.size >= MAX_PAGES) this.#pages.delete(this.#pages.keys().next().value);
      page = this.#blob.slice(index * PAGE, (index + 1) * PAGE).arrayBuffer();
      this.#pages.set(index, page);
    }
    return page;
  }
}

/** The most tensors of a file, and the most characters of a name, that are read. */
export const MAX_TENSORS = 20_000;
export const MAX_NAME = 4096;
/** The most scales of a type: a link holds them all. */
export const MAX_SCALES = 4096;

/** @throws {Error} for a count that is larger than a limit */
export function limited(count, most, what) {
  if (count > most) throw new Error(`The file has ${count} ${what}; at most ${most} are read.`);
  return count;
}

const READERS = {
  f16: [2, (view, at) => half(view.getUint16(at, true))],
  bf16: [2, (view, at) => upper(view.getUint16(at, true))],
  f32: [4, (view, at) => view.getFloat32(at, true)],
  f64: [8, (view, at) => view.getFloat64(at, true)],
  i8: [1, (view, at) => view.getInt8(at)],
  u8: [1, (view, at) => view.getUint8(at)],
  i16: [2, (view, at) => view.getInt16(at, true)],
  u16: [2, (view, at) => view.getUint16(at, true)],
  i32: [4, (view, at) => view.getInt32(at, true)],
  u32: [4, (view, at) => view.getUint32(at, true)],
  i64: [8, (view, at) => Number(view.getBigInt64(at, true))],
};

/** @returns {Promise<number[]>} `count` numbers of a type, little-endian */
export async function numbersAt(file, at, count, type) {
  if (!Object.hasOwn(READERS, type)) throw new Error(`Numbers of type ${type} are not read.`);
  const [width, read] = READERS[type];
  const view = await file.view(at, limited(count, MAX_SCALES, "scales") * width);
  return Array.from({ length: count }, (_, index) => read(view, index * width));
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

function upper(bits) {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits * 65536);
  return view.getFloat32(0);
}
