"""The networks of the field list: how each is made and what it reads.

Those of torchvision and timm are their own; four that neither defines are in `small.py`. timm is imported by the network that
needs it, so that the others are there without it.
"""

import torchvision

import small


def mobilenet_v1():
    import timm

    return timm.create_model("mobilenetv1_100")


# Name, half, constructor, input. Every kind of network has a member in both halves where there are two.
NETWORKS = [
    ("resnet18", "judge", torchvision.models.resnet18, (3, 224, 224)),
    ("resnet50", "fit", torchvision.models.resnet50, (3, 224, 224)),
    ("resnet152", "judge", torchvision.models.resnet152, (3, 224, 224)),
    ("resnext50", "fit", torchvision.models.resnext50_32x4d, (3, 224, 224)),
    ("resnext101", "judge", torchvision.models.resnext101_32x8d, (3, 224, 224)),
    ("regnety400mf", "judge", torchvision.models.regnet_y_400mf, (3, 224, 224)),
    ("regnety8gf", "fit", torchvision.models.regnet_y_8gf, (3, 224, 224)),
    ("vgg16", "fit", torchvision.models.vgg16, (3, 224, 224)),
    ("densenet121", "fit", torchvision.models.densenet121, (3, 224, 224)),
    ("inceptionv3", "fit", lambda: torchvision.models.inception_v3(init_weights=False), (3, 299, 299)),
    ("mobilenetv1", "judge", mobilenet_v1, (3, 224, 224)),
    ("mobilenetv2", "fit", torchvision.models.mobilenet_v2, (3, 224, 224)),
    ("mobilenetv3", "judge", torchvision.models.mobilenet_v3_large, (3, 224, 224)),
    ("efficientnetb0", "fit", torchvision.models.efficientnet_b0, (3, 224, 224)),
    ("efficientnetb4", "judge", torchvision.models.efficientnet_b4, (3, 380, 380)),
    ("convnext", "judge", torchvision.models.convnext_tiny, (3, 224, 224)),
    ("detector", "fit", small.Detector, (3, 640, 640)),
    ("unet", "judge", small.UNet, (3, 512, 512)),
    ("imagevae", "fit", small.ImageDecoder, (4, 64, 64)),
    ("videovae", "judge", small.VideoDecoder, (16, 1, 60, 104)),
]
