"""Serializers of the example site: nested, by slug, by address, for single actions."""

from rest_framework import serializers

from tests.sites.shop.models import Category, Customer, Ledger, Order, OrderLine, Product, Tag


class LineSerializer(serializers.ModelSerializer):
    class Meta:
        model = OrderLine
        fields = ["product", "quantity", "price"]


class OrderSerializer(serializers.ModelSerializer):
    lines = LineSerializer(many=True, required=False)
    customer_name = serializers.CharField(source="customer.name", read_only=True)

    class Meta:
        model = Order
        fields = ["number", "status", "customer", "customer_name", "total", "placed_at", "lines"]
        read_only_fields = ["total"]

    def create(self, validated_data):
        lines = validated_data.pop("lines", [])
        order = super().create(validated_data)
        OrderLine.objects.bulk_create(OrderLine(order=order, **line) for line in lines)
        return order

    def validate_number(self, value):
        if value == "13":
            raise serializers.ValidationError("This number brings bad luck.")
        return value


class BriefOrderSerializer(serializers.ModelSerializer):
    class Meta:
        model = Order
        fields = ["number", "status"]


class PaymentSerializer(serializers.Serializer):
    amount = serializers.DecimalField(max_digits=8, decimal_places=2, min_value=1)
    pin = serializers.CharField(style={"input_type": "password"}, min_length=4)


class CategorySerializer(serializers.HyperlinkedModelSerializer):
    class Meta:
        model = Category
        fields = ["url", "code", "title", "parent"]
        extra_kwargs = {
            "url": {"view_name": "category-detail"},
            "parent": {"view_name": "category-detail"},
        }


class ProductSerializer(serializers.ModelSerializer):
    category = serializers.SlugRelatedField(slug_field="code", queryset=Category.objects.all())
    tags = serializers.SlugRelatedField(slug_field="word", many=True, queryset=Tag.objects.all())
    shout = serializers.SerializerMethodField()

    class Meta:
        model = Product
        fields = ["slug", "name", "category", "price", "size", "weight", "manual", "tags", "shout"]

    def get_shout(self, product):
        return product.name.upper()


class TagSerializer(serializers.ModelSerializer):
    class Meta:
        model = Tag
        fields = ["id", "word"]


class CustomerSerializer(serializers.ModelSerializer):
    class Meta:
        model = Customer
        fields = ["id", "name", "email", "password"]
        extra_kwargs = {"password": {"write_only": True, "style": {"input_type": "password"}}}


class LedgerSerializer(serializers.ModelSerializer):
    class Meta:
        model = Ledger
        fields = ["iban", "owner"]


class FeedbackSerializer(serializers.Serializer):
    text = serializers.CharField()
    stars = serializers.IntegerField(min_value=1, max_value=5)
    is_public = serializers.BooleanField(default=False)
    words = serializers.ListField(child=serializers.CharField(), required=False)


class UploadSerializer(serializers.Serializer):
    file = serializers.FileField()


class EverythingSerializer(serializers.ModelSerializer):
    class Meta:
        model = Product
        exclude = ["digest"]


class DeepSerializer(serializers.ModelSerializer):
    class Meta:
        model = OrderLine
        fields = "__all__"
        depth = 2
