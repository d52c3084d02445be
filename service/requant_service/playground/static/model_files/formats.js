/** The formats of model files. */
import { BoundedFile } from "./bounded_file.js";
import { isGguf, tensorsOfGguf } from "./gguf.js";
import { isOnnx, tensorsOfOnnx } from "./onnx.js";
import { isSafetensors, tensorsOfSafetensors } from "./safetensors.js";
import { isTflite, tensorsOfTflite } from "./tflite.js";

export const ENDINGS = ".tflite,.onnx,.gguf,.safetensors";

/**
 * @typedef {Object} FileTensor
 * @property {string} name
 * @property {string} type of the elements, as MLIR names it if it has one
 * @property {number[]|null} shape null for one that the file does not say
 * @property {number} scaleCount
 * @property {(function(): Promise<{scales: number[], zeroPoints: number[], axis: number|null}>)|null} read what quantizes it;
 *   null for none
 */

// By what a file begins with, not by its name. ONNX has next to nothing: it is the last.
const FORMATS = [
  { title: "LiteRT", is: isTflite, tensors: tensorsOfTflite },
  { title: "GGUF", is: isGguf, tensors: tensorsOfGguf },
  { title: "safetensors", is: isSafetensors, tensors: tensorsOfSafetensors },
  { title: "ONNX", is: isOnnx, tensors: tensorsOfOnnx },
];

/**
 * @param {Blob} blob
 * @returns {Promise<{title: string, tensors: FileTensor[]}>}
 * @throws {Error} that says what is wrong with the file
 */
export async function readModelFile(blob) {
  const file = new BoundedFile(blob);
  for (const { title, is, tensors } of FORMATS) {
    if (await is(file)) return { title, tensors: await saying(title, () => tensors(file)) };
  }
  throw new Error("This is no LiteRT, ONNX, GGUF or safetensors file.");
}

async function saying(title, read) {
  try {
    return await read();
  } catch (error) {
    throw new Error(`As ${title}: ${error.message}`);
  }
}
